// Lays the virtual registers of PTX out in the register file.
#pragma once

#include <cstdint>
#include <vector>

#include "instruction.h"

namespace ptx {

// Replaces the register numbers in `program` by byte offsets. Registers that are never alive together share a
// place, so that a warp's file stays in the CPU's first-level cache: nvcc gives every value of an unrolled
// loop a register of its own. `bits` holds each register's size: 1, 32 or 64.
void place_registers(Program& program, const std::vector<uint8_t>& bits);

}  // namespace ptx
