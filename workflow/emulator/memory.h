// The address spaces of a launch. Every buffer is an allocation of its own at a made-up device address, far
// from all others, so that an access is either inside one buffer or out of bounds.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ptx {

constexpr uint64_t kParameterWindow = 0x400000000000ull;
constexpr uint64_t kLocalWindow = 0x500000000000ull;
constexpr uint64_t kSharedWindow = 0x600000000000ull;
constexpr uint64_t kGlobalWindow = 0x700000000000ull;
constexpr uint64_t kWindowBytes = 0x100000000000ull;
constexpr int kBufferShift = 36;           // 64 GiB of addresses for each buffer
constexpr uint32_t kFirstVariable = 1024;  // buffers from here on are the module's own variables

// What a lane reads where it must not, and what shared and local memory hold before anything is written to
// them: a NaN in every floating-point format, so that it shows in results.
constexpr uint8_t kJunkByte = 0xff;
alignas(16) inline constexpr uint8_t kJunk[16] = {
    kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte,
    kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte, kJunkByte,
};

// Who wrote a granule of global memory last in this launch.
struct GlobalCell {
    uint32_t time = 0;
    uint32_t block = 0;
    uint32_t writer = 0;  // thread in its block, and how (shared_check.h)
};

struct Buffer {
    std::string name;
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
    std::vector<GlobalCell> cells;         // filled only when the kernel is checked and writes here
    uint32_t written_at = 0;               // time of the latest checked write
    std::vector<uint64_t> sectors_loaded;  // a bit for each 32 bytes, only while counting
    std::vector<uint64_t> sectors_stored;
};

class Memory {
  public:
    static uint64_t address_of(uint32_t buffer) { return kGlobalWindow + (uint64_t{buffer} << kBufferShift); }

    // The buffer that `address` belongs to, whatever its size; null when there is none.
    Buffer* buffer_at(uint64_t address) {
        if (address < kGlobalWindow) return nullptr;
        const uint64_t number = (address - kGlobalWindow) >> kBufferShift;
        if (number < buffers.size()) return &buffers[number];
        if (number >= kFirstVariable && number - kFirstVariable < variables.size())
            return &variables[number - kFirstVariable];
        return nullptr;
    }

    static uint64_t offset_in_buffer(uint64_t address) {
        return address & ((uint64_t{1} << kBufferShift) - 1);
    }

    std::vector<Buffer> buffers;
    std::vector<Buffer> variables;
};

}  // namespace ptx
