// Predicts what ptxas makes of accesses to shared memory: which neighbours it joins into one wider
// instruction, and what it puts before asynchronous copies. Checked against its output for every kernel
// here; docs/emulator.md tells the rules and where they fail.
#pragma once

#include "instruction.h"

namespace ptx {

// Fills merged_bytes and merged_shift of the notes; needs register numbers, before they are placed. Without
// `joins` every access stays alone, as ptxas -O0 leaves it.
void predict_merging(Program& program, bool joins);

// Fills padding of the notes. `architecture` is 90 for sm_90.
void predict_padding(Program& program, unsigned architecture);

}  // namespace ptx
