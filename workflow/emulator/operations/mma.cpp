// mma.sync of the shapes m16n8k16 and m16n8k8 (float16, bfloat16) and m16n8k8, m16n8k4 (TF32), with the
// register layout that PTX documents: lane = 4 * group + member.
#include "../decoder.h"
#include "../lanes.h"
#include "../tensor.h"

namespace ptx {

namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;

// Element e of a lane's piece of A: with 16-bit elements two a register, side by side along k.
struct Coordinates {
    int row;
    int column;
};

Coordinates place_in_a(int lane, int element, bool packed) {
    const int group = lane / 4;
    const int member = lane % 4;
    const int part = packed ? element / 2 : element;
    const int column = packed ? 2 * member + element % 2 : member;
    const int step = packed ? 8 : 4;
    return {group + 8 * (part % 2), column + step * (part / 2)};
}

Coordinates place_in_b(int lane, int element, bool packed) {
    const int group = lane / 4;
    const int member = lane % 4;
    const int part = packed ? element / 2 : element;
    const int row = packed ? 2 * member + element % 2 : member;
    return {row + (packed ? 8 : 4) * part, group};
}

Coordinates place_in_c(int lane, int element) {
    return {lane / 4 + 8 * (element / 2), 2 * (lane % 4) + element % 2};
}

// The e-th element of a list of registers that hold one or two.
uint32_t element_bits(Warp& warp, const Register* registers, int element, bool packed, int lane) {
    if (!packed) return warp.lanes<uint32_t>(registers[element])[lane];
    return warp.lanes<uint32_t>(registers[element / 2])[lane] >> (16 * (element % 2)) & 0xffff;
}

template <int kDepth>
void multiply(Warp& warp, const Instruction& instruction, uint32_t) {
    const Register* list = &warp.block->launch->program->operand_lists[instruction.list];
    const Type type = instruction.type;
    const auto accumulator = static_cast<Type>(instruction.option[0]);
    const bool packed = type != Type::TF32;
    const bool packed_sums = accumulator == Type::F16;
    const int per_register = packed ? 2 : 1;
    const int a_elements = kRows * kDepth / kLanes;
    const int b_elements = kColumns * kDepth / kLanes;
    const Register* d = list;
    const Register* a = d + instruction.list_outputs;
    const Register* b = a + a_elements / per_register;
    const Register* c = b + b_elements / per_register;

    MatrixProduct<kRows, kColumns, kDepth> product;
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int e = 0; e < a_elements; ++e) {
            const Coordinates at = place_in_a(lane, e, packed);
            product.a[at.row][at.column] = matrix_element(type, element_bits(warp, a, e, packed, lane));
        }
        for (int e = 0; e < b_elements; ++e) {
            const Coordinates at = place_in_b(lane, e, packed);
            product.b[at.row][at.column] = matrix_element(type, element_bits(warp, b, e, packed, lane));
        }
        for (int e = 0; e < 4; ++e) {
            const Coordinates at = place_in_c(lane, e);
            product.sum[at.row][at.column] =
                accumulator_value(accumulator, element_bits(warp, c, e, packed_sums, lane));
        }
    }
    product.multiply();
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t results[4];
        for (int e = 0; e < 4; ++e) {
            const Coordinates at = place_in_c(lane, e);
            results[e] = rounded_accumulator(accumulator, product.sum[at.row][at.column]);
        }
        for (int i = 0; i < instruction.list_outputs; ++i)
            warp.lanes<uint32_t>(d[i])[lane] =
                packed_sums ? results[2 * i] | results[2 * i + 1] << 16 : results[i];
    }
}

// Appends the registers of an operand, of which there must be so many.
void add_inputs(Decoder& decoder, size_t operand, int count) {
    const std::vector<std::string> names = decoder.pieces(operand);
    if (names.size() != static_cast<size_t>(count)) decoder.unsupported();
    for (const std::string& name : names)
        decoder.add_input(decoder.source(name, Type::B32));
}

bool decode_mma(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.take("sync") || !decoder.take("aligned") || !decoder.take("row") || !decoder.take("col"))
        decoder.unsupported();
    const Type c_type = decoder.take_type();
    const Type b_type = decoder.take_type();
    const Type a_type = decoder.take_type();
    const Type d_type = decoder.take_type();
    const bool sixteen_bits = a_type == Type::F16 || a_type == Type::BF16;
    const bool float_sums = d_type == Type::F32 && c_type == Type::F32;
    const bool half_sums = d_type == Type::F16 && c_type == Type::F16 && a_type == Type::F16;
    if (a_type != b_type || (!sixteen_bits && a_type != Type::TF32) || (!float_sums && !half_sums))
        decoder.unsupported();
    int depth = 0;
    if (sixteen_bits && decoder.take("m16n8k16")) {
        depth = 16;
        instruction.execute = multiply<16>;
    } else if (decoder.take("m16n8k8")) {
        depth = 8;
        instruction.execute = multiply<8>;
    } else if (!sixteen_bits && decoder.take("m16n8k4")) {
        depth = 4;
        instruction.execute = multiply<4>;
    } else {
        decoder.unsupported();
    }
    decoder.expect_operands(4, 4);
    const int per_register = sixteen_bits ? 2 : 1;
    const int sums = float_sums ? 4 : 2;
    const std::vector<std::string> results = decoder.pieces(0);
    if (results.size() != static_cast<size_t>(sums)) decoder.unsupported();
    for (const std::string& name : results)
        decoder.add_output(decoder.destination(name));
    add_inputs(decoder, 1, kRows * depth / kLanes / per_register);
    add_inputs(decoder, 2, kColumns * depth / kLanes / per_register);
    add_inputs(decoder, 3, sums);
    instruction.type = a_type;
    instruction.option[0] = static_cast<uint8_t>(c_type);
    instruction.kind = Kind::Converged;
    decoder.note().tensor_flops = static_cast<uint16_t>(2 * kRows * kColumns * depth / kLanes);
    return true;
}

}  // namespace

void register_mma_operations(OpcodeTable& table) {
    table["mma"].push_back(decode_mma);
}

}  // namespace ptx
