// Predicts which neighbouring shared loads ptxas turns into one wide load.
#pragma once

#include "instruction.h"

namespace ptx {

// Fills InstructionNote::merged_bytes; needs register numbers, before they are placed.
void predict_load_merging(Program& program);

}  // namespace ptx
