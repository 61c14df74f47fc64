// Moves and address conversions: mov with packing and unpacking, cvta, isspacep.
#include "../decoder.h"
#include "../lanes.h"

namespace ptx {

namespace {

struct Copy {
    template <class T>
    static T apply(T a) {
        return a;
    }
};

void copy_predicate(Warp& warp, const Instruction& instruction, uint32_t active) {
    write_predicate(warp, instruction.destination, active, warp.predicate(instruction.a));
}

const Register* list_of(const Warp& warp, const Instruction& instruction) {
    return &warp.block->launch->program->operand_lists[instruction.list];
}

// mov.b32 %r, {%rs, %rs} and the like: the first piece is the lowest.
template <class Whole, class Piece>
void pack(Warp& warp, const Instruction& instruction, uint32_t active) {
    constexpr int kPieces = sizeof(Whole) / sizeof(Piece);
    const Register* inputs = list_of(warp, instruction);
    const Stored<Piece>* pieces[kPieces];
    for (int i = 0; i < kPieces; ++i)
        pieces[i] = warp.lanes<Stored<Piece>>(inputs[i]);
    write_lanes<Whole>(warp, instruction.destination, active, [&](int lane) {
        Whole whole = 0;
        for (int i = 0; i < kPieces; ++i)
            whole |= static_cast<Whole>(static_cast<Piece>(pieces[i][lane])) << (8 * sizeof(Piece) * i);
        return whole;
    });
}

template <class Whole, class Piece>
void unpack(Warp& warp, const Instruction& instruction, uint32_t active) {
    constexpr int kPieces = sizeof(Whole) / sizeof(Piece);
    const Register* outputs = list_of(warp, instruction);
    Whole whole[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
        whole[lane] = warp.lanes<Whole>(instruction.a)[lane];
    for (int i = 0; i < kPieces; ++i)
        write_lanes<Piece>(warp, outputs[i], active, [&](int lane) {
            return static_cast<Piece>(whole[lane] >> (8 * sizeof(Piece) * i));
        });
}

Type unsigned_of(uint32_t bytes) {
    return bytes == 2 ? Type::U16 : bytes == 4 ? Type::U32 : Type::U64;
}

bool decode_pack(Decoder& decoder, Type type, bool unpacks) {
    Instruction& instruction = decoder.instruction();
    decoder.expect_operands(2, 2);
    const std::vector<std::string> pieces = decoder.pieces(unpacks ? 0 : 1);
    const uint32_t whole = bytes_of(type);
    const uint32_t piece = pieces.empty() ? 0 : whole / static_cast<uint32_t>(pieces.size());
    for (const std::string& name : pieces) {
        if (unpacks)
            decoder.add_output(name == "_" ? decoder.scratch(piece == 8 ? 64 : 32)
                                           : decoder.destination(name));
        else
            decoder.add_input(decoder.source(name, unsigned_of(piece)));
    }
    if (unpacks)
        instruction.a = decoder.source(1, type);
    else
        instruction.destination = decoder.destination(0);
    if (whole == 8 && piece == 4)
        instruction.execute = unpacks ? unpack<uint64_t, uint32_t> : pack<uint64_t, uint32_t>;
    else if (whole == 8 && piece == 2)
        instruction.execute = unpacks ? unpack<uint64_t, uint16_t> : pack<uint64_t, uint16_t>;
    else if (whole == 4 && piece == 2)
        instruction.execute = unpacks ? unpack<uint32_t, uint16_t> : pack<uint32_t, uint16_t>;
    else if (whole == 4 && piece == 1)
        instruction.execute = unpacks ? unpack<uint32_t, uint8_t> : pack<uint32_t, uint8_t>;
    else
        decoder.unsupported();
    return true;
}

// The clock counts the block's instructions: it never tells a time.
template <class T>
void read_clock(Warp& warp, const Instruction& instruction, uint32_t active) {
    const T value = static_cast<T>(warp.block->instructions);
    write_lanes<T>(warp, instruction.destination, active, [=](int) { return value; });
}

bool decode_move(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    const Type type = decoder.take_type();
    if (decoder.operand(0)[0] == '{') return decode_pack(decoder, type, true);
    if (decoder.operand(1)[0] == '{') return decode_pack(decoder, type, false);
    const std::string& from = decoder.operand(1);
    instruction.type = type;
    if (from == "%clock" || from == "%clock64" || from == "%globaltimer" || from == "%clock_hi") {
        instruction.destination = decoder.destination(0);
        instruction.execute =
            bytes_of(type) == 8 ? static_cast<Handler>(read_clock<uint64_t>) : read_clock<uint32_t>;
        return true;
    }
    decoder.unary(type);
    if (type == Type::Pred)
        instruction.execute = copy_predicate;
    else
        instruction.execute =
            bytes_of(type) == 8 ? static_cast<Handler>(unary<uint64_t, Copy>) : unary<uint32_t, Copy>;
    return true;
}

// A generic address is one of global memory, or one of another space moved to its window.
void add_window(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint64_t* a = warp.lanes<uint64_t>(instruction.a);
    const uint64_t window = static_cast<uint64_t>(instruction.displacement);
    write_lanes<uint64_t>(warp, instruction.destination, active, [=](int lane) { return a[lane] + window; });
}

bool decode_convert_address(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    if (decoder.take_type() != Type::U64) decoder.unsupported();
    decoder.unary(Type::U64);
    const bool to = decoder.take("to");
    uint64_t window = 0;
    switch (decoder.take_space()) {
        case Space::Global:
        case Space::Constant:
            window = 0;
            break;
        case Space::Shared:
            window = kSharedWindow;
            break;
        case Space::Local:
            window = kLocalWindow;
            break;
        case Space::Parameter:
            window = kParameterWindow;
            break;
        case Space::Generic:
            decoder.unsupported();
    }
    instruction.type = Type::U64;
    instruction.displacement = static_cast<int64_t>(to ? 0 - window : window);
    instruction.execute = add_window;
    return true;
}

// Global memory, and the module's variables, lie behind all other windows.
void is_global(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint64_t* a = warp.lanes<uint64_t>(instruction.a);
    write_predicate(warp, instruction.destination, active,
                    lanes_where([=](int lane) { return a[lane] >= kGlobalWindow; }));
}

void is_in_window(Warp& warp, const Instruction& instruction, uint32_t active) {
    const uint64_t* a = warp.lanes<uint64_t>(instruction.a);
    const uint64_t window = static_cast<uint64_t>(instruction.displacement);
    write_predicate(warp, instruction.destination, active,
                    lanes_where([=](int lane) { return a[lane] - window < kWindowBytes; }));
}

bool decode_is_space(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    decoder.unary(Type::U64);
    instruction.execute = is_in_window;
    switch (decoder.take_space()) {
        case Space::Global:
            instruction.execute = is_global;
            break;
        case Space::Shared:
            instruction.displacement = kSharedWindow;
            break;
        case Space::Local:
            instruction.displacement = kLocalWindow;
            break;
        case Space::Parameter:
            instruction.displacement = kParameterWindow;
            break;
        default:
            decoder.unsupported();
    }
    return true;
}

}  // namespace

void register_move_operations(OpcodeTable& table) {
    table["mov"].push_back(decode_move);
    table["cvta"].push_back(decode_convert_address);
    table["isspacep"].push_back(decode_is_space);
}

}  // namespace ptx
