#include "findings.h"

#include "execution.h"

namespace ptx {

namespace {

void split_thread(const Launch& launch, uint32_t thread, uint32_t* position) {
    position[0] = thread % launch.block[0];
    position[1] = thread / launch.block[0] % launch.block[1];
    position[2] = thread / launch.block[0] / launch.block[1];
}

}  // namespace

void Findings::clear() {
    findings_.clear();
    index_.clear();
}

bool Findings::first(FindingKind kind, const Instruction& instruction, const Program& program) {
    const auto added = index_.emplace(std::make_tuple(&program, instruction.index, kind), findings_.size());
    if (!added.second) {
        ++findings_[added.first->second].count;
        return false;
    }
    Finding finding;
    finding.kind = kind;
    const InstructionNote& note = program.notes[instruction.index];
    finding.instruction = note.text;
    finding.line = note.source.line;
    if (files_ != nullptr) {
        const auto file = files_->find(note.source.file);
        if (file != files_->end()) finding.file = file->second;
    }
    findings_.push_back(std::move(finding));
    return true;
}

void Findings::describe(const Warp& warp, int lane, const std::string& what, int other) {
    Finding& finding = findings_.back();
    const Block& block = *warp.block;
    for (int axis = 0; axis < 3; ++axis)
        finding.block[axis] = block.position[axis];
    split_thread(*block.launch, warp.thread(lane), finding.thread);
    finding.has_other = other >= 0;
    if (other >= 0) split_thread(*block.launch, static_cast<uint32_t>(other), finding.other_thread);
    finding.message =
        "thread " + name_position(finding.thread) + " of block " + name_position(finding.block) + " " + what;
}

std::string name_position(const uint32_t position[3]) {
    return "(" + std::to_string(position[0]) + "," + std::to_string(position[1]) + "," +
           std::to_string(position[2]) + ")";
}

std::string name_thread(const Warp& warp, int thread) {
    uint32_t position[3];
    split_thread(*warp.block->launch, static_cast<uint32_t>(thread), position);
    return name_position(position);
}

}  // namespace ptx
