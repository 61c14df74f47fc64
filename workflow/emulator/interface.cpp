#include "interface.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder.h"
#include "errors.h"
#include "execution.h"
#include "scheduler.h"

using namespace ptx;

struct ptx_module {
    ModuleText text;
    VariableAddresses addresses;
    std::unordered_map<std::string, std::unique_ptr<Program>> programs;  // decoded when first launched
    std::vector<std::vector<uint8_t>> variables;
    Memory memory;
    Findings findings;
    Counters counters;
    Block block;
    uint32_t now = 1;
};

namespace {

constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kMostSharedBytes = 227 * 1024;
constexpr uint32_t kClockLimit = 0x80000000u;

void say(char* message, uint32_t bytes, const std::string& text) {
    if (message != nullptr && bytes != 0) std::snprintf(message, bytes, "%s", text.c_str());
}

// Runs `body`, and turns what it throws into a status and a message.
template <class Body>
int guarded(char* message, uint32_t bytes, Body body) {
    try {
        body();
        return PTX_OK;
    } catch (const Unavailable& error) {
        say(message, bytes, error.what());
        return PTX_UNAVAILABLE;
    } catch (const NotLaunchable& error) {
        say(message, bytes, error.what());
        return PTX_NOT_LAUNCHABLE;
    } catch (const std::bad_alloc&) {
        say(message, bytes, "the emulator ran out of memory");
        return PTX_NO_MEMORY;
    } catch (const std::exception& error) {
        say(message, bytes, error.what());
        return PTX_BAD_ARGUMENT;
    }
}

void place_variables(ptx_module& module) {
    for (const Variable& variable : module.text.variables) {
        if (variable.space == Space::Shared || variable.unknown_initial) continue;
        std::vector<uint8_t> bytes = variable.initial;
        bytes.resize(variable.bytes);
        module.variables.push_back(std::move(bytes));
        const auto number = static_cast<uint32_t>(kFirstVariable + module.variables.size() - 1);
        module.addresses[variable.name] = Memory::address_of(number);
    }
    size_t index = 0;
    for (const Variable& variable : module.text.variables) {
        if (variable.space == Space::Shared || variable.unknown_initial) continue;
        Buffer buffer;
        buffer.name = variable.name;
        buffer.data = module.variables[index].data();
        buffer.bytes = variable.bytes;
        module.memory.variables.push_back(std::move(buffer));
        ++index;
    }
}

const Program& find_program(ptx_module& module, const std::string& entry) {
    const auto known = module.programs.find(entry);
    if (known != module.programs.end()) return *known->second;
    for (const EntryText& text : module.text.entries) {
        if (text.name != entry) continue;
        auto program = std::make_unique<Program>(decode_entry(module.text, text, module.addresses));
        return *(module.programs[entry] = std::move(program));
    }
    throw BadArgument("kernel " + entry + " isn't in the module");
}

std::string dimensions(const uint32_t* size) {
    return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
}

void check_limits(const ptx_launch& request, const Program& program) {
    const uint64_t threads = uint64_t{request.block[0]} * request.block[1] * request.block[2];
    const uint64_t blocks = uint64_t{request.grid[0]} * request.grid[1] * request.grid[2];
    if (threads == 0 || blocks == 0)
        throw NotLaunchable("grid " + dimensions(request.grid) + " and block " + dimensions(request.block) +
                            ": every dimension must be 1 or more");
    if (threads > kMostThreads)
        throw NotLaunchable("a block of " + std::to_string(threads) + " threads; the limit is " +
                            std::to_string(kMostThreads));
    if (program.max_threads != 0 && threads > program.max_threads)
        throw NotLaunchable("a block of " + std::to_string(threads) +
                            " threads; the kernel's __launch_bounds__ allow " +
                            std::to_string(program.max_threads));
    if (request.block[2] > 64)
        throw NotLaunchable("block.z is " + std::to_string(request.block[2]) + "; the limit is 64");
    if (request.grid[1] > 65535 || request.grid[2] > 65535 || blocks > 0xffffffffull)
        throw NotLaunchable("grid " + dimensions(request.grid) + "; the limit is 2147483647 x 65535 x 65535");
    const uint64_t shared = uint64_t{program.static_shared_bytes} + request.shared_bytes;
    if (shared > kMostSharedBytes)
        throw NotLaunchable(std::to_string(shared) + " bytes of shared memory (" +
                            std::to_string(program.static_shared_bytes) + " static, " +
                            std::to_string(request.shared_bytes) + " dynamic); the limit is " +
                            std::to_string(kMostSharedBytes));
    if (request.parameter_bytes != program.parameter_bytes)
        throw BadArgument("entry " + program.name + " takes " + std::to_string(program.parameter_bytes) +
                          " bytes of parameters, given " + std::to_string(request.parameter_bytes));
}

void set_buffers(ptx_module& module, const ptx_launch& request) {
    std::vector<Buffer>& buffers = module.memory.buffers;
    buffers.resize(request.buffer_count);
    for (uint32_t i = 0; i < request.buffer_count; ++i) {
        const ptx_buffer& given = request.buffers[i];
        buffers[i].name = given.name;
        buffers[i].data = static_cast<uint8_t*>(given.data);
        buffers[i].bytes = given.bytes;
    }
}

// Times are compared, so the clock may not run over: what remembers times is cleared first.
void restart_clock(ptx_module& module) {
    module.now = 1;
    module.block.shared_check.reset();
    for (std::vector<Buffer>* buffers : {&module.memory.buffers, &module.memory.variables}) {
        for (Buffer& buffer : *buffers) {
            buffer.cells.clear();
            buffer.written_at = 0;
        }
    }
}

void run(ptx_module& module, const ptx_launch& request) {
    const Program& program = find_program(module, request.entry);
    check_limits(request, program);
    set_buffers(module, request);
    if (module.now > kClockLimit) restart_clock(module);

    Launch launch;
    launch.program = &program;
    std::copy(request.grid, request.grid + 3, launch.grid);
    std::copy(request.block, request.block + 3, launch.block);
    launch.threads = request.block[0] * request.block[1] * request.block[2];
    launch.warps = (launch.threads + kLanes - 1) / kLanes;
    launch.dynamic_shared_bytes = request.shared_bytes;
    launch.shared_bytes = program.static_shared_bytes + request.shared_bytes;
    launch.parameters = request.parameters;
    launch.memory = &module.memory;
    launch.findings = &module.findings;
    const bool counting = (request.flags & PTX_COUNT) != 0;
    launch.counters = counting ? &module.counters : nullptr;
    launch.find = (request.flags & PTX_FIND) != 0;
    launch.now = &module.now;
    launch.begin = ++module.now;
    launch.order = request.order;
    launch.block_budget = request.block_budget;

    module.findings.set_files(&module.text.files);
    if (counting) module.counters.begin(program);
    run_launch(launch, module.block);
    if (!counting) return;
    module.counters.end(program);
    module.counters.add_unique_sectors(module.memory.buffers);
    module.counters.add_unique_sectors(module.memory.variables);
}

}  // namespace

ptx_module* ptx_load(const char* text, uint64_t length, uint32_t flags, char* message,
                     uint32_t message_bytes) {
    auto module = std::make_unique<ptx_module>();
    const int status = guarded(message, message_bytes, [&] {
        module->text = parse_module(std::string_view(text, length));
        module->text.joins_accesses = (flags & PTX_JOIN) != 0;
        place_variables(*module);
    });
    return status == PTX_OK ? module.release() : nullptr;
}

void ptx_free(ptx_module* module) {
    delete module;
}

uint64_t ptx_buffer_address(uint32_t buffer) {
    return Memory::address_of(buffer);
}

uint32_t ptx_entry_count(const ptx_module* module) {
    return static_cast<uint32_t>(module->text.entries.size());
}

const char* ptx_entry_name(const ptx_module* module, uint32_t entry) {
    return module->text.entries[entry].name.c_str();
}

uint32_t ptx_parameter_count(const ptx_module* module, uint32_t entry) {
    return static_cast<uint32_t>(module->text.entries[entry].parameters.size());
}

void ptx_parameter_at(const ptx_module* module, uint32_t entry, uint32_t index, ptx_parameter* parameter) {
    const Parameter& found = module->text.entries[entry].parameters[index];
    *parameter = {found.bytes, found.offset};
}

uint32_t ptx_parameter_bytes(const ptx_module* module, uint32_t entry) {
    return module->text.entries[entry].parameter_bytes;
}

int ptx_run(ptx_module* module, const ptx_launch* launch, char* message, uint32_t message_bytes) {
    return guarded(message, message_bytes, [&] { run(*module, *launch); });
}

void ptx_reset(ptx_module* module) {
    module->findings.clear();
    module->counters.clear();
}

uint32_t ptx_finding_count(const ptx_module* module) {
    return static_cast<uint32_t>(module->findings.all().size());
}

void ptx_finding_at(const ptx_module* module, uint32_t index, ptx_finding* out) {
    const Finding& finding = module->findings.all()[index];
    out->kind = static_cast<uint32_t>(finding.kind);
    out->line = finding.line;
    out->message = finding.message.c_str();
    out->instruction = finding.instruction.c_str();
    out->file = finding.file.c_str();
    std::copy(finding.block, finding.block + 3, out->block);
    std::copy(finding.thread, finding.thread + 3, out->thread);
    out->has_other_thread = finding.has_other ? 1 : 0;
    std::copy(finding.other_thread, finding.other_thread + 3, out->other_thread);
    out->count = finding.count;
}

uint32_t ptx_counter_count(void) {
    return kCounters;
}

const char* ptx_counter_name(uint32_t counter) {
    return counter_name(static_cast<Counter>(counter));
}

void ptx_counters(const ptx_module* module, uint64_t* values) {
    std::copy(module->counters.totals(), module->counters.totals() + kCounters, values);
}

uint64_t ptx_shared_cost(const uint32_t* addresses, uint32_t active, uint32_t bytes, uint32_t is_store) {
    const SharedCost cost = is_store != 0 ? shared_store_cost(addresses, active, bytes)
                                          : shared_load_cost(addresses, active, bytes);
    return uint64_t{cost.phases} << 32 | cost.wavefronts;
}

uint32_t ptx_sectors(const uint64_t* addresses, uint32_t active, uint32_t bytes) {
    return count_sectors(addresses, active, bytes);
}

int ptx_shared_widths(ptx_module* module, const char* entry, uint32_t* counts, char* message,
                      uint32_t message_bytes) {
    return guarded(message, message_bytes, [&] {
        constexpr int kWidths = 5;
        std::fill_n(counts, 2 * kWidths, 0u);
        const Program& program = find_program(*module, entry);
        for (const Instruction& instruction : program.code) {
            const uint32_t width = program.notes[instruction.index].merged_bytes;
            if (width == 0) continue;
            const int first = instruction.access == Access::Load ? 0 : kWidths;
            ++counts[first + __builtin_ctz(width)];
        }
    });
}
