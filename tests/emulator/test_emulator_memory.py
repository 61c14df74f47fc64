"""Moves, address spaces, vector accesses, local memory, parameters, constants and atomics."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptx_pieces import WARP, assert_same_bits, entry, launch, run_once
from test_emulator_integers import values

LANE = "\tmov.u32 %r0, %tid.x;\n"


def kernel(load, parameters: str, body: str, **options):
    return load(entry(parameters, LANE + body, **options))


def test_packing_and_unpacking(piece):
    a, b = values(np.uint32, 1), values(np.uint32, 2)
    got = piece("mov.b64 %out, {%a, %b};", np.uint64, a=a, b=b)
    np.testing.assert_array_equal(got, b.astype(np.uint64) << np.uint64(32) | a)
    swapped = piece("mov.b64 {%r5, %r6}, %a;\nmov.b64 %out, {%r6, %r5};", np.uint64, a=got)
    np.testing.assert_array_equal(swapped, a.astype(np.uint64) << np.uint64(32) | b)
    high = piece("mov.b32 {_, %out}, %a;", np.uint16, a=a)
    np.testing.assert_array_equal(high, (a >> 16).astype(np.uint16))
    halves = piece("mov.b32 {%h1, %h2}, %a;\nmov.b32 %out, {%h2, %h1};", np.uint32, a=a)
    np.testing.assert_array_equal(halves, a >> 16 | a << 16)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("u8", np.uint8), ("s8", np.int8), ("u16", np.uint16), ("s16", np.int16)]
)
@pytest.mark.parametrize("wide", [False, True])
def test_narrow_loads_extend(load, kind, dtype, wide):
    source = values(dtype, 3)[:WARP].copy()
    out = np.zeros(WARP, np.int64 if wide else np.int32)
    register, store = ("%rd5", "u64") if wide else ("%r5", "u32")
    executor = kernel(
        load,
        "u64 u64",
        f"""ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
        mad.wide.u32 %rd2, %r0, {source.itemsize}, %rd0; mad.wide.u32 %rd3, %r0, {out.itemsize}, %rd1;
        ld.global.{kind} {register}, [%rd2]; st.global.{store} [%rd3], {register};""",
    )
    execution = run_once(executor, launch("in", "out"), {"in": source, "out": out})
    assert not execution.findings
    np.testing.assert_array_equal(out, source.astype(out.dtype))


@pytest.mark.parametrize(("elements", "kind"), [(2, "f32"), (4, "f32"), (2, "f64"), (4, "u16"), (2, "u8")])
@pytest.mark.parametrize("space", ["global", "shared", "generic"])
def test_vector_accesses(load, elements, kind, space):
    dtype = {"f32": np.float32, "f64": np.float64, "u16": np.uint16, "u8": np.uint8}[kind]
    prefix = {"f32": "%f", "f64": "%fd", "u16": "%h", "u8": "%h"}[kind]
    size = elements * np.dtype(dtype).itemsize
    registers = ", ".join(f"{prefix}{i + 1}" for i in range(elements))
    backwards = ", ".join(f"{prefix}{i + 1}" for i in reversed(range(elements)))
    through = {
        "global": "",
        "shared": f"""mov.u32 %r5, buffer; mad.lo.u32 %r6, %r0, {size}, %r5;
            st.shared.v{elements}.{kind} [%r6], {{{registers}}};
            ld.shared.v{elements}.{kind} {{{registers}}}, [%r6];""",
        "generic": f"""mov.u64 %rd5, buffer; cvta.shared.u64 %rd6, %rd5; mad.wide.u32 %rd7, %r0, {size}, %rd6;
            st.v{elements}.{kind} [%rd7], {{{registers}}}; ld.v{elements}.{kind} {{{registers}}}, [%rd7];""",
    }[space]
    executor = kernel(
        load,
        "u64 u64",
        f"""ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
        mad.wide.u32 %rd2, %r0, {size}, %rd0; mad.wide.u32 %rd3, %r0, {size}, %rd1;
        ld.global.nc.v{elements}.{kind} {{{registers}}}, [%rd2]; {through}
        st.global.v{elements}.{kind} [%rd3], {{{backwards}}};""",
        module=".shared .align 16 .b8 buffer[1024];\n",
    )
    source = np.arange(WARP * elements).astype(dtype)
    out = np.zeros_like(source)
    execution = run_once(executor, launch("in", "out"), {"in": source, "out": out})
    assert not execution.findings
    np.testing.assert_array_equal(out.reshape(WARP, elements), source.reshape(WARP, elements)[:, ::-1])


def test_generic_addresses_of_several_spaces_in_one_instruction(load):
    executor = kernel(
        load,
        "u64 u64",
        """.local .align 8 .b8 mine[16];
        ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
        mov.u64 %rd2, tile; cvta.shared.u64 %rd2, %rd2; mad.wide.u32 %rd2, %r0, 4, %rd2;
        mov.u64 %rd3, mine; cvta.local.u64 %rd3, %rd3;
        mad.wide.u32 %rd4, %r0, 4, %rd0; mad.wide.u32 %rd5, %r0, 4, %rd1;
        mul.lo.u32 %r1, %r0, 10; st.shared.u32 [%rd2], 0;
        cvta.to.shared.u64 %rd6, %rd2; st.shared.u32 [%rd6], %r1; add.u32 %r2, %r1, 1; st.local.u32 [mine+0], %r2;
        rem.u32 %r3, %r0, 3; setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r3, 1;
        selp.b64 %rd7, %rd2, %rd3, %p1; selp.b64 %rd7, %rd4, %rd7, %p2;
        ld.u32 %r4, [%rd7]; st.global.u32 [%rd5], %r4;
        isspacep.shared %p3, %rd7; @%p3 add.u32 %r4, %r4, 1000; @%p3 st.global.u32 [%rd5], %r4;""".replace(
            "st.shared.u32 [%rd2], 0;", ""
        ),
        module=".shared .align 4 .b8 tile[128];\n",
    )
    source = np.arange(WARP, dtype=np.uint32) + 500
    out = np.zeros(WARP, np.uint32)
    execution = run_once(executor, launch("in", "out"), {"in": source, "out": out})
    assert not execution.findings
    lane = np.arange(WARP)
    wanted = np.choose(lane % 3, [lane * 10 + 1000, source, lane * 10 + 1])
    np.testing.assert_array_equal(out, wanted)


def test_local_memory_belongs_to_each_thread(load):
    executor = kernel(
        load,
        "u64",
        """.local .align 16 .b8 mine[64];
        ld.param.u64 %rd0, [p0]; mov.u64 %rd1, mine; mov.u32 %r1, 0;
        fill: add.u32 %r2, %r1, %r0; mad.wide.u32 %rd2, %r1, 4, %rd1; st.local.u32 [%rd2], %r2;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 16; @%p1 bra fill;
        and.b32 %r3, %r0, 15; mad.wide.u32 %rd3, %r3, 4, %rd1; ld.local.u32 %r4, [%rd3];
        ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [mine+16]; add.u32 %r4, %r4, %r8;
        mad.wide.u32 %rd4, %r0, 4, %rd0; st.global.u32 [%rd4], %r4;""",
    )
    out = np.zeros(64, np.uint32)
    assert not run_once(executor, launch("out", block=(64, 1, 1)), {"out": out}).findings
    lane = np.arange(64)
    np.testing.assert_array_equal(out, lane % 16 + lane + 7 + lane)


def test_local_memory_holds_junk_at_first(load):
    # In every block anew: none sees what another left in the same place.
    executor = kernel(
        load,
        "u64",
        """.local .align 4 .b8 mine[8]; ld.param.u64 %rd0, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
        mad.lo.u32 %r3, %r1, %r2, %r0; mad.wide.u32 %rd1, %r3, 4, %rd0;
        ld.local.u32 %r4, [mine+4]; st.local.u32 [mine+4], %r0; st.global.u32 [%rd1], %r4;""",
    )
    out = np.zeros(120, np.uint32)
    assert not executor.run([launch("out", grid=(3, 1, 1), block=(40, 1, 1))] * 2, {"out": out}).findings
    assert (out == 0xFFFFFFFF).all()


def test_parameters_of_every_size_and_by_value(load):
    text = (
        entry("u64 u32 f32 u64", "")
        .replace(".param .u64 p3", ".param .align 8 .b8 p3[24]")
        .replace(
            "\tret;",
            """ld.param.u64 %rd0, [p0]; ld.param.u32 %r1, [p1]; ld.param.f32 %f1, [p2];
        ld.param.u32 %r2, [p3+4]; mov.u32 %r0, %tid.x; and.b32 %r3, %r0, 3; mov.b64 %rd1, p3;
        mad.wide.u32 %rd2, %r3, 4, %rd1; ld.param.u32 %r4, [%rd2+8];
        add.u32 %r5, %r1, %r2; add.u32 %r5, %r5, %r4; cvt.rzi.u32.f32 %r6, %f1; add.u32 %r5, %r5, %r6;
        mad.wide.u32 %rd3, %r0, 4, %rd0; st.global.u32 [%rd3], %r5; ret;""",
        )
    )
    executor = load(text)
    out = np.zeros(WARP, np.uint32)
    # The front end passes no structs; the bytes go through the C interface as they are.
    packed = struct.pack("<QIf6I", executor._library.ptx_buffer_address(0), 1000, 7.0, 1, 2, 10, 20, 30, 40)
    executor._pack = lambda *_: packed
    assert not run_once(executor, launch("out", 0, 0, 0), {"out": out}).findings
    np.testing.assert_array_equal(out, 1009 + 10 * (np.arange(WARP) % 4 + 1))


def test_constant_and_global_variables(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; and.b32 %r1, %r0, 3; mov.u64 %rd1, table; mad.wide.u32 %rd2, %r1, 4, %rd1;
        ld.const.f32 %f1, [%rd2]; mov.u32 %r2, 1; atom.global.add.u32 %r3, [counter], %r2;
        cvt.rn.f32.u32 %f2, %r3; add.f32 %f1, %f1, %f2; mad.wide.u32 %rd3, %r0, 4, %rd0; st.global.f32 [%rd3], %f1;""",
        module=".const .align 4 .b8 table[16] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64};\n"
        ".global .align 4 .u32 counter = 100;\n",
    )
    out = np.zeros(WARP, np.float32)
    for first in (100, 132):  # a module's variable outlives a launch
        assert not run_once(executor, launch("out"), {"out": out}).findings
        np.testing.assert_array_equal(out, np.arange(WARP) % 4 + 1 + first + np.arange(WARP))


def test_dynamic_shared_memory_lies_behind_the_static(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mov.u32 %r1, fixed; mov.u32 %r2, dynamic; mov.u32 %r3, %dynamic_smem_size;
        sub.u32 %r4, %r2, %r1; add.u32 %r4, %r4, %r3; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r4;""",
        module=".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .b8 fixed[20];\n",
    )
    out = np.zeros(WARP, np.uint32)
    run_once(executor, launch("out", shared_bytes=256), {"out": out})
    np.testing.assert_array_equal(out, 32 + 256)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("operation", "kind", "start", "wanted"),
    [
        ("add", "u32", 5, 5 + sum(range(32))),
        ("min", "s32", 40, 0),
        ("max", "u32", 3, 31),
        ("and", "b32", 0xFF, 0),
        ("or", "b32", 0, 31),
        ("xor", "b32", 7, 7),
        ("inc", "u32", 30, None),
        ("exch", "b32", 9, 31),
    ],
)
def test_atomics(load, space, operation, kind, start, wanted):
    if space == "shared":
        setup = f"""mov.u64 %rd1, cell; setp.eq.u32 %p1, %r0, 0; mov.u32 %r9, {start};
            @%p1 st.shared.u32 [cell], %r9; bar.sync 0;"""
    else:
        setup = "mov.u64 %rd1, %rd0;"
    executor = kernel(
        load,
        "u64 u64",
        f"""ld.param.u64 %rd0, [p0]; ld.param.u64 %rd2, [p1]; {setup}
        atom.{space}.{operation}.{kind} %r1, [%rd1], %r0; bar.sync 0; ld.{space}.u32 %r2, [%rd1];
        mad.wide.u32 %rd3, %r0, 4, %rd2; st.global.u32 [%rd3], %r2; st.global.u32 [%rd3+128], %r1;""",
        module=".shared .align 4 .b8 cell[4];\n",
    )
    cell, out = np.array([start], np.uint32), np.zeros(64, np.uint32)
    assert not run_once(executor, launch("cell", "out"), {"cell": cell, "out": out}).findings
    value = start
    for lane in range(WARP):
        assert out[WARP + lane] == value  # what the lane found
        value = {
            "add": value + lane,
            "min": min(value, lane),
            "max": max(value, lane),
            "and": value & lane,
            "or": value | lane,
            "xor": value ^ lane,
            "inc": 0 if value >= lane else value + 1,
            "exch": lane,
        }[operation]
    assert (out[:WARP] == value).all()
    assert wanted is None or value == wanted


def test_compare_and_swap_and_float_add(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; add.u32 %r1, %r0, 1; atom.global.cas.b32 %r2, [%rd0], %r0, %r1;
        cvt.rn.f32.u32 %f1, %r0; red.global.add.f32 [%rd0+4], %f1; cvt.f64.f32 %fd1, %f1;
        red.global.add.f64 [%rd0+8], %fd1;""",
    )
    out = np.zeros(4, np.uint32)
    assert not run_once(executor, launch("out"), {"out": out}).findings
    assert out[0] == WARP
    assert out[1:2].view(np.float32)[0] == 496
    assert out[2:].view(np.float64)[0] == 496


def test_bytes_of_every_lane_keep_apart(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mov.u32 %r1, tile; add.u32 %r2, %r1, %r0; st.shared.u8 [%r2], %r0; bar.sync 0;
        xor.b32 %r3, %r0, 1; add.u32 %r3, %r3, %r1; ld.shared.u8 %r4, [%r3]; cvt.u64.u32 %rd1, %r0;
        add.u64 %rd2, %rd0, %rd1; st.global.u8 [%rd2], %r4;""",
        module=".shared .align 4 .b8 tile[32];\n",
    )
    out = np.zeros(WARP, np.uint8)
    assert not run_once(executor, launch("out"), {"out": out}).findings
    np.testing.assert_array_equal(out, np.arange(WARP) ^ 1)


def test_special_registers(load):
    names = [
        "%tid.x",
        "%tid.y",
        "%tid.z",
        "%ctaid.x",
        "%ctaid.y",
        "%ctaid.z",
        "%ntid.y",
        "%nctaid.z",
        "%laneid",
        "%warpid",
        "%lanemask_lt",
        "%lanemask_ge",
    ]
    body = "".join(
        f"mov.u32 %r1, {name}; st.global.u32 [%rd3+{4 * i}], %r1;\n" for i, name in enumerate(names)
    )
    executor = load(
        entry(
            "u64",
            """ld.param.u64 %rd0, [p0]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z;
            mad.lo.u32 %r5, %r4, 2, %r3; mad.lo.u32 %r5, %r5, 3, %r2; mul.lo.u32 %r5, %r5, 40;
            mov.u32 %r6, %tid.x; mov.u32 %r7, %tid.y; mov.u32 %r8, %tid.z; mad.lo.u32 %r9, %r8, 2, %r7;
            mad.lo.u32 %r9, %r9, 10, %r6; add.u32 %r5, %r5, %r9; mad.wide.u32 %rd3, %r5, 48, %rd0;\n"""
            + body,
        )
    )
    out = np.zeros((2, 2, 3, 2, 2, 10, 12), np.uint32)
    execution = run_once(executor, launch("out", grid=(3, 2, 2), block=(10, 2, 2)), {"out": out.reshape(-1)})
    assert not execution.findings
    assert out[1, 0, 2, 1, 1, 7].tolist() == [7, 1, 1, 2, 0, 1, 2, 2, 5, 1, 0x1F, 0xFFFFFFE0]
    assert_same_bits(out[0, 0, 0, 0, 0, :, 0].astype(np.float32), np.arange(10, dtype=np.float32))
