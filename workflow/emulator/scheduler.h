// Runs a launch: block after block, and within a block warp after warp, each until it must wait.
#pragma once

#include <cstdint>

#include "execution.h"

namespace ptx {

// Runs all blocks of the launch in `block`, whose memory is reused from launch to launch. False when a block
// made no progress, which is among the findings then, and the launch was stopped.
bool run_launch(const Launch& launch, Block& block);

}  // namespace ptx
