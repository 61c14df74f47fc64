// Loops over the lanes of a warp. A register is 32 contiguous values, so a handler is a loop that the
// compiler turns into vector instructions; with only some lanes active it computes all and blends, which is
// still vector code.
#pragma once

#include <cstdint>
#include <type_traits>

#include "execution.h"

namespace ptx {

// How a value of type T lies in a register: 16-bit values take 32 bits, of which the upper half means
// nothing.
template <class T>
struct Slot {
    using Stored = T;
    static T load(T value) { return value; }
    static T store(T value) { return value; }
};

template <>
struct Slot<int16_t> {
    using Stored = uint32_t;
    static int16_t load(uint32_t value) { return static_cast<int16_t>(value); }
    static uint32_t store(int16_t value) { return static_cast<uint16_t>(value); }
};

template <>
struct Slot<uint16_t> {
    using Stored = uint32_t;
    static uint16_t load(uint32_t value) { return static_cast<uint16_t>(value); }
    static uint32_t store(uint16_t value) { return value; }
};

template <>
struct Slot<int8_t> {
    using Stored = uint32_t;
    static int8_t load(uint32_t value) { return static_cast<int8_t>(value); }
    static uint32_t store(int8_t value) { return static_cast<uint32_t>(value); }
};

template <>
struct Slot<uint8_t> {
    using Stored = uint32_t;
    static uint8_t load(uint32_t value) { return static_cast<uint8_t>(value); }
    static uint32_t store(uint8_t value) { return value; }
};

template <class T>
using Stored = typename Slot<T>::Stored;

// Writes value(lane) to each active lane of the register; `value` is called for inactive lanes too.
template <class T, class Value>
inline void write_lanes(Warp& warp, Register place, uint32_t active, Value value) {
    Stored<T>* destination = warp.lanes<Stored<T>>(place);
    if (active == kAllLanes) {
#pragma GCC ivdep
        for (int lane = 0; lane < kLanes; ++lane)
            destination[lane] = Slot<T>::store(value(lane));
    } else {
        const uint32_t* mask = warp.expand(active);
#pragma GCC ivdep
        for (int lane = 0; lane < kLanes; ++lane) {
            const Stored<T> computed = Slot<T>::store(value(lane));
            destination[lane] = mask[lane] != 0 ? computed : destination[lane];
        }
    }
}

// Calls body(lane) for each active lane, lowest first.
template <class Body>
inline void for_each_lane(uint32_t active, Body body) {
    for (uint32_t rest = active; rest != 0; rest &= rest - 1)
        body(__builtin_ctz(rest));
}

// A predicate register is a bit a lane.
inline void write_predicate(Warp& warp, Register place, uint32_t active, uint32_t bits) {
    uint32_t& predicate = warp.predicate(place);
    predicate = (predicate & ~active) | (bits & active);
}

// The bits for which test(lane) holds.
template <class Test>
inline uint32_t lanes_where(Test test) {
    uint32_t bits = 0;
    for (int lane = 0; lane < kLanes; ++lane)
        bits |= static_cast<uint32_t>(test(lane)) << lane;
    return bits;
}

template <class T, class Operation>
void unary(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<T>* a = warp.lanes<Stored<T>>(instruction.a);
    write_lanes<T>(warp, instruction.destination, active,
                   [=](int lane) { return Operation::apply(Slot<T>::load(a[lane])); });
}

template <class T, class Operation>
void binary(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<T>* a = warp.lanes<Stored<T>>(instruction.a);
    const Stored<T>* b = warp.lanes<Stored<T>>(instruction.b);
    write_lanes<T>(warp, instruction.destination, active, [=](int lane) {
        return Operation::apply(Slot<T>::load(a[lane]), Slot<T>::load(b[lane]));
    });
}

template <class T, class Operation>
void ternary(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Stored<T>* a = warp.lanes<Stored<T>>(instruction.a);
    const Stored<T>* b = warp.lanes<Stored<T>>(instruction.b);
    const Stored<T>* c = warp.lanes<Stored<T>>(instruction.c);
    write_lanes<T>(warp, instruction.destination, active, [=](int lane) {
        return Operation::apply(Slot<T>::load(a[lane]), Slot<T>::load(b[lane]), Slot<T>::load(c[lane]));
    });
}

}  // namespace ptx
