// What can go wrong before or instead of running a kernel; the C interface turns each into a status.
#pragma once

#include <stdexcept>
#include <string>

namespace ptx {

// The emulator lacks an instruction or feature; the message names it.
struct Unavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A limit of the device is exceeded; the message gives both numbers.
struct NotLaunchable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The caller asked for something that isn't there, or the text is no PTX.
struct BadArgument : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace ptx
