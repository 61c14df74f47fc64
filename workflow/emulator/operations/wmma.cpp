// wmma of the shape m16n16k16 with float16 or bfloat16 factors. PTX leaves the layout of a fragment open;
// here A and B lie as two operands of mma.m16n8k16 would, and accumulators as its results.
#include <cstring>

#include "../access.h"
#include "../decoder.h"
#include "../global_check.h"
#include "../lanes.h"
#include "../tensor.h"

namespace ptx {

namespace {

constexpr int kSize = 16;  // rows, columns and depth

enum Fragment : uint8_t { kA, kB, kC, kD };

struct Coordinates {
    int row;
    int column;
};

// Element e of 8 that each lane holds.
Coordinates place_of(Fragment fragment, int lane, int element) {
    const int group = lane / 4;
    const int pair = 2 * (lane % 4) + element % 2;
    const int part = element / 2;
    if (fragment == kA) return {group + 8 * (part % 2), pair + 8 * (part / 2)};
    if (fragment == kB) return {pair + 8 * (part % 2), group + 8 * (part / 2)};
    return {group + 8 * (part % 2), pair + 8 * (part / 2)};
}

constexpr int kElements = kSize * kSize / kLanes;

struct Fields {
    Fragment fragment;
    bool by_column;
    Type type;
};

Fields fields_of(const Instruction& instruction) {
    return {static_cast<Fragment>(instruction.option[0]), instruction.option[1] != 0, instruction.type};
}

// Addresses of the e-th element of each lane. Base and stride are the same for the whole warp.
void element_addresses(Warp& warp, const Instruction& instruction, int element, uint64_t base,
                       uint64_t* addresses) {
    const Fields fields = fields_of(instruction);
    const uint64_t stride = warp.lanes<uint32_t>(instruction.b)[0];
    for (int lane = 0; lane < kLanes; ++lane) {
        const Coordinates at = place_of(fields.fragment, lane, element);
        const uint64_t index = fields.by_column ? at.column * stride + at.row : at.row * stride + at.column;
        addresses[lane] = base + index * instruction.width;
    }
}

struct Start {
    Space space;
    uint64_t address;
};

Start start_of(Warp& warp, const Instruction& instruction, uint32_t active) {
    uint64_t addresses[kLanes];
    lane_addresses(warp, instruction, active, addresses);
    if (instruction.space != Space::Generic) return {instruction.space, addresses[0]};
    const SpaceLanes chosen = lanes_of_one_space(1, addresses);
    if (chosen.space == Space::Shared) return {Space::Shared, addresses[0] - kSharedWindow};
    return {Space::Global, addresses[0]};
}

// What a lane holds of a fragment, one element after another.
using Elements = uint32_t[kElements][kLanes];

// The cost of a fragment in shared memory: as 8 x 8 pieces whose rows are read at once, which a device may do
// otherwise.
void count_shared_fragment(Warp& warp, const Instruction& instruction, uint64_t base, bool is_store) {
    InstructionCount& count = warp.block->launch->counters->of(instruction);
    const uint64_t stride = warp.lanes<uint32_t>(instruction.b)[0];
    count.words += static_cast<uint64_t>(kSize) * kSize * instruction.width / 4;
    if (instruction.width == 2) {
        // Factors are read by an LDSM, which isn't counted with LDS; accumulators by one LDS or STS a piece.
        const Fragment fragment = fields_of(instruction).fragment;
        if (fragment != kA && fragment != kB) count.requests += 4;
        for (int piece = 0; piece < 4; ++piece) {
            uint32_t rows[kLanes] = {};
            for (int row = 0; row < 8; ++row)
                rows[row] =
                    static_cast<uint32_t>(base + 2 * ((row + 8 * (piece % 2)) * stride + 8 * (piece / 2)));
            const SharedCost cost =
                is_store ? shared_store_cost(rows, 0xff, 16) : shared_load_cost(rows, 0xff, 16);
            count.wavefronts += cost.wavefronts;
            count.phases += cost.phases;
        }
        return;
    }
    // Pairs of float32, side by side when the matrix lies by rows.
    const bool pairs = !fields_of(instruction).by_column;
    for (int element = 0; element < kElements; element += pairs ? 2 : 1) {
        uint64_t wide[kLanes];
        uint32_t addresses[kLanes];
        element_addresses(warp, instruction, element, base, wide);
        narrow_addresses(wide, addresses);
        const uint32_t bytes = pairs ? 8 : 4;
        const SharedCost cost = is_store ? shared_store_cost(addresses, kAllLanes, bytes)
                                         : shared_load_cost(addresses, kAllLanes, bytes);
        count.requests += 1;
        count.wavefronts += cost.wavefronts;
        count.phases += cost.phases;
    }
}

void count_global_element(Warp& warp, const Instruction& instruction, const uint64_t* addresses) {
    InstructionCount& count = warp.block->launch->counters->of(instruction);
    count.requests += 1;
    count.sectors += count_sectors(addresses, kAllLanes, instruction.width);
    count.words += kLanes;
}

void read_shared(Warp& warp, const Instruction& instruction, uint64_t base, Elements& elements) {
    const Launch& launch = *warp.block->launch;
    const uint32_t width = instruction.width;
    if (launch.counters != nullptr) count_shared_fragment(warp, instruction, base, false);
    for (int element = 0; element < kElements; ++element) {
        uint64_t wide[kLanes];
        uint32_t addresses[kLanes];
        element_addresses(warp, instruction, element, base, wide);
        narrow_addresses(wide, addresses);
        const uint32_t good = check_shared(warp, instruction, kAllLanes, addresses, width, width, "reads");
        for (int lane = 0; lane < kLanes; ++lane) {
            elements[element][lane] = 0xffffffffu;
            if ((good >> lane & 1) == 0) continue;
            if (launch.find)
                warp.block->shared_check.load_for_warp(warp, instruction, addresses[lane], width);
            elements[element][lane] = 0;
            std::memcpy(&elements[element][lane], &warp.block->shared[addresses[lane]], width);
        }
    }
}

void read_global(Warp& warp, const Instruction& instruction, uint64_t base, Elements& elements) {
    const Launch& launch = *warp.block->launch;
    const uint32_t width = instruction.width;
    for (int element = 0; element < kElements; ++element) {
        uint64_t addresses[kLanes];
        element_addresses(warp, instruction, element, base, addresses);
        if (launch.counters != nullptr) count_global_element(warp, instruction, addresses);
        for_each_buffer(warp, instruction, kAllLanes, addresses, width, width, "reads",
                        [&](Buffer* buffer, const uint64_t* offsets, uint32_t good, uint32_t all) {
                            for_each_lane(all, [&](int lane) { elements[element][lane] = 0xffffffffu; });
                            if (good == 0) return;
                            if (launch.find && launch.program->stores_global)
                                check_global(warp, instruction, *buffer, good, offsets, width,
                                             GlobalAccess::Read, nullptr);
                            for_each_lane(good, [&](int lane) {
                                elements[element][lane] = 0;
                                std::memcpy(&elements[element][lane], buffer->data + offsets[lane], width);
                            });
                        });
    }
}

void load_fragment(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Register* places = &warp.block->launch->program->operand_lists[instruction.list];
    const Start start = start_of(warp, instruction, active);
    Elements elements;
    if (start.space == Space::Shared)
        read_shared(warp, instruction, start.address, elements);
    else
        read_global(warp, instruction, start.address, elements);
    const bool packed = instruction.width == 2;
    const int registers = packed ? kElements / 2 : kElements;
    for (int i = 0; i < instruction.list_outputs; ++i) {
        const int from = i % registers;  // the upper half of eight registers of float16 repeats the lower
        for (int lane = 0; lane < kLanes; ++lane)
            warp.lanes<uint32_t>(places[i])[lane] =
                packed ? elements[2 * from][lane] | elements[2 * from + 1][lane] << 16 : elements[from][lane];
    }
}

void store_fragment(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Launch& launch = *warp.block->launch;
    const Register* places = &launch.program->operand_lists[instruction.list];
    const Start start = start_of(warp, instruction, active);
    const uint32_t width = instruction.width;
    if (launch.counters != nullptr && start.space == Space::Shared)
        count_shared_fragment(warp, instruction, start.address, true);
    for (int element = 0; element < kElements; ++element) {
        uint64_t wide[kLanes];
        element_addresses(warp, instruction, element, start.address, wide);
        uint8_t values[kLanes * 4];
        for (int lane = 0; lane < kLanes; ++lane) {
            const uint32_t bits =
                width == 2 ? warp.lanes<uint32_t>(places[element / 2])[lane] >> (16 * (element % 2))
                           : warp.lanes<uint32_t>(places[element])[lane];
            std::memcpy(values + lane * width, &bits, width);
        }
        if (start.space == Space::Shared) {
            uint32_t addresses[kLanes];
            narrow_addresses(wide, addresses);
            const uint32_t good =
                check_shared(warp, instruction, kAllLanes, addresses, width, width, "writes");
            if (launch.find)
                warp.block->shared_check.store(warp, instruction, addresses, good, width, values);
            else
                for_each_lane(good, [&](int lane) {
                    std::memcpy(&warp.block->shared[addresses[lane]], values + lane * width, width);
                });
            continue;
        }
        if (launch.counters != nullptr) count_global_element(warp, instruction, wide);
        for_each_buffer(warp, instruction, kAllLanes, wide, width, width, "writes",
                        [&](Buffer* buffer, const uint64_t* offsets, uint32_t good, uint32_t) {
                            if (good == 0) return;
                            if (launch.find) {
                                check_global(warp, instruction, *buffer, good, offsets, width,
                                             GlobalAccess::Write, values);
                                return;
                            }
                            for_each_lane(good, [&](int lane) {
                                std::memcpy(buffer->data + offsets[lane], values + lane * width, width);
                            });
                        });
    }
}

uint32_t element_bits(Warp& warp, const Register* registers, int element, bool packed, int lane) {
    if (!packed) return warp.lanes<uint32_t>(registers[element])[lane];
    return warp.lanes<uint32_t>(registers[element / 2])[lane] >> (16 * (element % 2)) & 0xffff;
}

void multiply_fragments(Warp& warp, const Instruction& instruction, uint32_t) {
    const Register* d = &warp.block->launch->program->operand_lists[instruction.list];
    const Register* a = d + instruction.list_outputs;
    const int factor_registers = instruction.target;
    const Register* b = a + factor_registers;
    const Register* c = b + factor_registers;
    const auto c_type = static_cast<Type>(instruction.option[0]);
    const auto d_type = static_cast<Type>(instruction.option[1]);

    MatrixProduct<kSize, kSize, kSize> product;
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int e = 0; e < kElements; ++e) {
            const Coordinates in_a = place_of(kA, lane, e);
            const Coordinates in_b = place_of(kB, lane, e);
            const Coordinates in_c = place_of(kC, lane, e);
            product.a[in_a.row][in_a.column] =
                matrix_element(instruction.type, element_bits(warp, a, e, true, lane));
            product.b[in_b.row][in_b.column] =
                matrix_element(instruction.type, element_bits(warp, b, e, true, lane));
            product.sum[in_c.row][in_c.column] =
                accumulator_value(c_type, element_bits(warp, c, e, c_type == Type::F16, lane));
        }
    }
    product.multiply();
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t results[kElements];
        for (int e = 0; e < kElements; ++e) {
            const Coordinates at = place_of(kC, lane, e);
            results[e] = rounded_accumulator(d_type, product.sum[at.row][at.column]);
        }
        for (int i = 0; i < instruction.list_outputs; ++i)
            warp.lanes<uint32_t>(d[i])[lane] =
                d_type == Type::F16 ? results[2 * i] | results[2 * i + 1] << 16 : results[i];
    }
}

bool take_shape(Decoder& decoder) {
    return decoder.take("sync") && decoder.take("aligned") && decoder.take("m16n16k16");
}

// Registers that PTX gives a fragment.
size_t registers_of(Fragment fragment, Type type) {
    if (fragment == kA || fragment == kB) return type == Type::F16 ? 8 : 4;
    return type == Type::F16 ? 4 : 8;
}

bool decode_transfer(Decoder& decoder, bool is_store) {
    Instruction& instruction = decoder.instruction();
    const int fragment = decoder.take_one_of({"a", "b", "c", "d"}, -1);
    const Type type = decoder.take_type();
    if (fragment < 0 || !take_shape(decoder)) decoder.unsupported();
    const bool factor = fragment == kA || fragment == kB;
    if (type != Type::F16 && type != (factor ? Type::BF16 : Type::F32)) decoder.unsupported();
    const int layout = decoder.take_one_of({"row", "col"}, -1);
    if (layout < 0) decoder.unsupported();
    instruction.option[0] = static_cast<uint8_t>(fragment);
    instruction.option[1] = static_cast<uint8_t>(layout);
    instruction.type = type;
    instruction.width = static_cast<uint8_t>(bytes_of(type));
    instruction.space = decoder.take_space();
    decoder.expect_operands(2, 3);
    const std::vector<std::string> names = decoder.pieces(is_store ? 1 : 0);
    if (names.size() != registers_of(static_cast<Fragment>(fragment), type)) decoder.unsupported();
    for (const std::string& name : names) {
        if (is_store)
            decoder.add_input(decoder.source(name, Type::B32));
        else
            decoder.add_output(decoder.destination(name));
    }
    decoder.address(is_store ? 0 : 1);
    instruction.b = decoder.operands() == 3 ? decoder.source(2, Type::U32) : decoder.constant(32, kSize);
    instruction.access = is_store ? Access::MatrixStore : Access::MatrixLoad;
    instruction.kind = Kind::Converged;
    instruction.execute = is_store ? store_fragment : load_fragment;
    Program& program = decoder.program();
    const uint32_t shift = instruction.width == 2 ? 1 : 2;
    program.shared_granule_shift = std::min(program.shared_granule_shift, shift);
    program.global_granule_shift = std::min(program.global_granule_shift, shift);
    if (is_store && instruction.space != Space::Shared) program.stores_global = true;
    return true;
}

bool decode_multiply(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!take_shape(decoder)) decoder.unsupported();
    // The layouts were the loads' concern.
    decoder.take_one_of({"row", "col"}, -1);
    decoder.take_one_of({"row", "col"}, -1);
    const Type c_type = decoder.take_type();
    Type factor = Type::F16;
    if (decoder.last_type() == Type::BF16) {
        factor = decoder.take_type();
        if (decoder.take_type() != factor) decoder.unsupported();
    }
    const Type d_type = decoder.take_type();
    for (const Type type : {c_type, d_type})
        if (type != Type::F32 && type != Type::F16) decoder.unsupported();
    decoder.expect_operands(4, 4);
    const std::vector<std::string> results = decoder.pieces(0);
    if (results.size() != registers_of(kD, d_type)) decoder.unsupported();
    for (const std::string& name : results)
        decoder.add_output(decoder.destination(name));
    const size_t factor_registers = registers_of(kA, factor);
    for (size_t operand = 1; operand < 4; ++operand) {
        const std::vector<std::string> names = decoder.pieces(operand);
        if (names.size() != (operand == 3 ? registers_of(kC, c_type) : factor_registers))
            decoder.unsupported();
        for (const std::string& name : names)
            decoder.add_input(decoder.source(name, Type::B32));
    }
    instruction.type = factor;
    instruction.option[0] = static_cast<uint8_t>(c_type);
    instruction.option[1] = static_cast<uint8_t>(d_type);
    instruction.target = static_cast<uint32_t>(factor_registers);
    instruction.kind = Kind::Converged;
    instruction.execute = multiply_fragments;
    decoder.note().tensor_flops = static_cast<uint16_t>(2 * kSize * kSize * kSize / kLanes);
    return true;
}

bool decode_wmma(Decoder& decoder) {
    if (decoder.take("load")) return decode_transfer(decoder, false);
    if (decoder.take("store")) return decode_transfer(decoder, true);
    if (decoder.take("mma")) return decode_multiply(decoder);
    decoder.unsupported();
}

}  // namespace

void register_wmma_operations(OpcodeTable& table) {
    table["wmma"].push_back(decode_wmma);
}

}  // namespace ptx
