// ldmatrix: one, two or four 8 x 8 matrices of 16-bit elements from shared memory. Lanes 8i to 8i + 7 give
// the addresses of the rows of matrix i; each lane gets two neighbouring elements of each matrix.
#include <cstring>

#include "../access.h"
#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

constexpr uint32_t kRowBytes = 16;

void count_matrices(Warp& warp, const Instruction& instruction, int matrices, const uint32_t* addresses) {
    // No request: Nsight Compute counts LDSM apart from LDS.
    InstructionCount& count = warp.block->launch->counters->of(instruction);
    count.words += static_cast<uint64_t>(matrices) * kLanes;
    for (int matrix = 0; matrix < matrices; ++matrix) {
        const SharedCost cost = shared_load_cost(addresses, 0xffu << (8 * matrix), kRowBytes);
        count.wavefronts += cost.wavefronts;
        count.phases += cost.phases;
    }
}

void load_matrices(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Launch& launch = *warp.block->launch;
    const Register* places = &launch.program->operand_lists[instruction.list];
    const int matrices = instruction.list_outputs;
    const bool transposed = instruction.option[0] != 0;
    uint64_t wide[kLanes];
    uint32_t addresses[kLanes];
    lane_addresses(warp, instruction, active, wide);
    if (instruction.space == Space::Generic)
        for (uint64_t& address : wide)
            address -= kSharedWindow;
    narrow_addresses(wide, addresses);
    if (launch.counters != nullptr) count_matrices(warp, instruction, matrices, addresses);

    const uint32_t givers = active & (matrices == 4 ? kAllLanes : (1u << (8 * matrices)) - 1);
    const uint32_t good = check_shared(warp, instruction, givers, addresses, kRowBytes, kRowBytes, "reads");
    uint16_t rows[kLanes][8];
    for (int lane = 0; lane < 8 * matrices; ++lane) {
        if ((good >> lane & 1) == 0) {
            std::memset(rows[lane], kJunkByte, kRowBytes);
            continue;
        }
        if (launch.find)
            warp.block->shared_check.load_for_warp(warp, instruction, addresses[lane], kRowBytes);
        std::memcpy(rows[lane], &warp.block->shared[addresses[lane]], kRowBytes);
    }
    for (int matrix = 0; matrix < matrices; ++matrix) {
        const uint16_t (*row)[8] = &rows[8 * matrix];
        write_lanes<uint32_t>(warp, places[matrix], active, [&](int lane) {
            const int i = lane / 4;
            const int j = lane % 4 * 2;
            const uint32_t low = transposed ? row[j][i] : row[i][j];
            const uint32_t high = transposed ? row[j + 1][i] : row[i][j + 1];
            return high << 16 | low;
        });
    }
}

bool decode_ldmatrix(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (decoder.take_type() != Type::B16 || !decoder.take("sync") || !decoder.take("aligned") ||
        !decoder.take("m8n8"))
        decoder.unsupported();
    instruction.option[0] = decoder.take("trans");
    const int matrices = decoder.take("x1") ? 1 : decoder.take("x2") ? 2 : decoder.take("x4") ? 4 : 0;
    instruction.space = decoder.take_space();
    if (instruction.space != Space::Shared && instruction.space != Space::Generic) decoder.unsupported();
    decoder.expect_operands(2, 2);
    const std::vector<std::string> names = decoder.pieces(0);
    if (matrices == 0 || names.size() != static_cast<size_t>(matrices)) decoder.unsupported();
    for (const std::string& name : names)
        decoder.add_output(decoder.destination(name));
    decoder.address(1);
    instruction.width = kRowBytes;
    instruction.access = Access::MatrixLoad;
    instruction.kind = Kind::Converged;
    instruction.execute = load_matrices;
    return true;
}

}  // namespace

void register_ldmatrix_operations(OpcodeTable& table) {
    table["ldmatrix"].push_back(decode_ldmatrix);
}

}  // namespace ptx
