#include "types.h"

#include <array>
#include <utility>

namespace ptx {

namespace {

struct TypeName {
    std::string_view name;
    Type type;
    uint32_t bytes;
};

constexpr std::array<TypeName, 20> kTypes = {{
    {"pred", Type::Pred, 0}, {"b8", Type::B8, 1},       {"u8", Type::U8, 1},         {"s8", Type::S8, 1},
    {"b16", Type::B16, 2},   {"u16", Type::U16, 2},     {"s16", Type::S16, 2},       {"f16", Type::F16, 2},
    {"bf16", Type::BF16, 2}, {"b32", Type::B32, 4},     {"u32", Type::U32, 4},       {"s32", Type::S32, 4},
    {"f32", Type::F32, 4},   {"f16x2", Type::F16x2, 4}, {"bf16x2", Type::BF16x2, 4}, {"tf32", Type::TF32, 4},
    {"b64", Type::B64, 8},   {"u64", Type::U64, 8},     {"s64", Type::S64, 8},       {"f64", Type::F64, 8},
}};

}  // namespace

Type parse_type(std::string_view text) {
    for (const TypeName& entry : kTypes)
        if (entry.name == text) return entry.type;
    return Type::None;
}

uint32_t bytes_of(Type type) {
    for (const TypeName& entry : kTypes)
        if (entry.type == type) return entry.bytes;
    return 0;
}

}  // namespace ptx
