// Predicts which neighbouring accesses of shared memory ptxas joins into one wider instruction. Checked
// against its output for every kernel here; docs/emulator.md tells the rules and where they fail.
#pragma once

#include "instruction.h"

namespace ptx {

// Fills merged_bytes and merged_shift of the notes; needs register numbers, before they are placed.
void predict_merging(Program& program);

}  // namespace ptx
