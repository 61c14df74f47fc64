// What a correct kernel never does, as seen while it ran: one record for each kind and instruction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "instruction.h"

namespace ptx {

struct Warp;

enum class FindingKind : uint8_t {
    Race,
    OutOfBounds,
    Misaligned,
    UninitialisedRead,
    DivergentBarrier,
    NoProgress,
};

struct Finding {
    FindingKind kind;
    std::string message;  // ends before the source line, which the front end adds
    std::string instruction;
    std::string file;
    uint32_t line = 0;
    uint32_t block[3] = {0, 0, 0};
    uint32_t thread[3] = {0, 0, 0};
    bool has_other = false;
    uint32_t other_thread[3] = {0, 0, 0};
    uint64_t count = 1;
};

class Findings {
  public:
    void clear();
    const std::vector<Finding>& all() const { return findings_; }

    // Counts another occurrence; true when it is the first, which then wants a description.
    bool first(FindingKind kind, const Instruction& instruction, const Program& program);

    // Describes the occurrence that `first` just counted; `other` is a thread of the same block or negative.
    void describe(const Warp& warp, int lane, const std::string& what, int other = -1);

    void set_files(const std::map<uint32_t, std::string>* files) { files_ = files; }

  private:
    std::vector<Finding> findings_;
    std::map<std::tuple<const Program*, uint32_t, FindingKind>, size_t> index_;
    const std::map<uint32_t, std::string>* files_ = nullptr;
};

// "(1,2,0)", of a thread numbered within its block.
std::string name_thread(const Warp& warp, int thread);
std::string name_position(const uint32_t position[3]);

}  // namespace ptx
