// Watches the global words that a launch writes: two threads that touch one without a barrier between them
// race.
//
// Reads are remembered nowhere, so a word read before another thread writes it goes unnoticed in that order
// of blocks and warps; in the opposite order it is found.
#pragma once

#include <cstdint>

#include "execution.h"

namespace ptx {

// Strong accesses (atomic, volatile, relaxed and the like) may meet their own kind. A read-only one
// (ld.global.nc) may not meet a write of its launch at all, its own thread's neither.
enum class GlobalAccess : uint8_t { Read, ReadOnly, Write, StrongRead, StrongWrite, Atomic };

// Checks accesses of `bytes` at each of `lanes`' offsets, all inside the buffer. A write is also done, lane
// after lane: `values` holds what each writes, one after another; null for reads and atomics.
void check_global(Warp& warp, const Instruction& instruction, Buffer& buffer, uint32_t lanes,
                  const uint64_t* offsets, uint32_t bytes, GlobalAccess access, const uint8_t* values);

}  // namespace ptx
