"""The rules for requests, sectors, wavefronts and merging, and what a launch counts."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from ptx_pieces import WARP, entry, launch, run_once

from gemmlab.executors.emulator import load_library

LANE = "\tmov.u32 %r0, %tid.x;\n"
TILE = ".shared .align 16 .b8 tile[8192];\n"
ALL = 0xFFFFFFFF
LANES = np.arange(WARP)


@pytest.fixture(scope="module")
def shared_cost(library):
    loaded = load_library(library)

    def cost(addresses, size: int, *, store: bool = False, active: int = ALL) -> tuple[int, int]:
        array = (ctypes.c_uint32 * WARP)(*map(int, addresses))
        both = loaded.ptx_shared_cost(array, active, size, store)
        return both & ALL, both >> 32

    return cost


# Bytes a lane, addresses by lane, active lanes, (wavefronts, phases) of a load, of a store.
PATTERNS = {
    "neighbours": (4, LANES * 4, ALL, (1, 1), (1, 1)),
    "one word": (4, LANES * 0, ALL, (1, 1), (1, 1)),
    "two words of one bank": (4, LANES // 16 * 128, ALL, (2, 1), (2, 1)),
    "every second word": (4, LANES * 8, ALL, (2, 1), (2, 1)),
    "a column of 32": (4, LANES * 128, ALL, (32, 1), (32, 1)),
    "a column of 33": (4, LANES * 132, ALL, (1, 1), (1, 1)),
    "a column of 16 wide tiles": (4, LANES % 16 * 64 + LANES // 16 * 4, ALL, (8, 1), (8, 1)),
    "half a warp in a column": (4, LANES * 128, 0xFFFF, (16, 1), (16, 1)),
    "one lane": (4, LANES * 128, 1, (1, 1), (1, 1)),
    "halves side by side": (2, LANES * 2, ALL, (1, 1), (1, 1)),
    "bytes": (1, LANES, ALL, (1, 1), (1, 1)),
    "pairs": (8, LANES * 8, ALL, (2, 2), (2, 2)),
    "pairs, every lane one": (8, LANES * 0, ALL, (1, 1), (2, 2)),
    "pairs, neighbours share": (8, LANES // 2 * 8, ALL, (1, 1), (2, 2)),
    "pairs, second neighbours share": (8, LANES // 4 * 16 + LANES % 2 * 8, ALL, (1, 1), (2, 2)),
    "pairs, halves of the warp share": (8, LANES % 16 * 8, ALL, (2, 2), (2, 2)),
    "pairs in a column": (8, LANES * 128, ALL, (32, 2), (32, 2)),
    "quads": (16, LANES * 16, ALL, (4, 4), (4, 4)),
    "quads, every lane one": (16, LANES * 0, ALL, (2, 2), (4, 4)),
    "quads, neighbours share": (16, LANES // 2 * 16, ALL, (2, 2), (4, 4)),
    "quads, 16 lanes share": (16, LANES // 16 * 16, ALL, (2, 2), (4, 4)),
    "quads 32 bytes apart": (16, LANES * 32, ALL, (8, 4), (8, 4)),
    "quads of 8 lanes": (16, LANES * 16, 0xFF, (1, 1), (1, 1)),
    # Inactive lanes match any address, so that every second lane counts as sharing.
    "quads of every second lane": (16, LANES * 16, 0x55555555, (4, 2), (4, 4)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_shared_wavefronts(shared_cost, name):
    size, addresses, active, load, store = PATTERNS[name]
    assert shared_cost(addresses, size, active=active) == load
    assert shared_cost(addresses, size, active=active, store=True) == store


@pytest.mark.parametrize(
    ("size", "addresses", "active", "sectors"),
    [
        (4, LANES * 4, ALL, 4),
        (4, LANES * 4 + 16, ALL, 5),  # not aligned to a sector
        (4, LANES * 0, ALL, 1),
        (4, LANES * 32, ALL, 32),
        (4, LANES * 4096, ALL, 32),
        (4, LANES * 8, ALL, 8),
        (4, (31 - LANES) * 4, ALL, 4),
        (4, LANES % 2 * 1024, ALL, 2),
        (4, LANES * 4, 0xFF, 1),
        (16, LANES * 16, ALL, 16),
        (16, LANES * 64, ALL, 32),
        (2, LANES * 2, ALL, 2),
    ],
)
def test_sectors(library, size, addresses, active, sectors):
    array = (ctypes.c_uint64 * WARP)(*(0x700000000000 + int(a) for a in addresses))
    assert load_library(library).ptx_sectors(array, active, size) == sectors


def counters(
    load, body: str, *, module: str = TILE, parameters: str = "u64", buffers=None, **shape
) -> dict[str, int]:
    buffers = buffers or {"A": np.zeros(4096, np.float32)}
    executor = load(entry(parameters, LANE + body, module=module))
    execution = run_once(executor, launch(*buffers, **shape), buffers, count=True)
    assert all(isinstance(value, int) for value in execution.counters.values())
    return dict(execution.counters)


def test_global_counters(load):
    got = counters(
        load,
        """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; mad.wide.u32 %rd2, %r0, 64, %rd0;
        ld.global.f32 %f1, [%rd1]; ld.global.nc.f32 %f2, [%rd2]; setp.lt.u32 %p1, %r0, 4;
        @%p1 st.global.v2.f32 [%rd2], {%f1, %f2}; setp.gt.u32 %p2, %r0, 999; @%p2 ld.global.f32 %f3, [%rd1];
        ld.f32 %f4, [%rd1]; ld.local.f32 %f5, [mine]; st.local.f32 [mine], %f5;""".replace(
            "ld.param", ".local .align 4 .b8 mine[4]; ld.param", 1
        ),
        grid=(3, 1, 1),
    )
    assert got["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 9
    assert got["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 3 * (4 + 32 + 4)
    assert got["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 3
    assert got["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 12
    assert got["smsp__inst_executed_op_global_ld.sum"] == got["ptx_global_loads"] == 9
    assert got["smsp__inst_executed_op_global_st.sum"] == got["ptx_global_stores"] == 3
    assert got["ptx_thread_global_loads"] == 3 * 96
    assert got["ptx_thread_global_stores"] == 3 * 8
    assert got["ptx_global_unique_sectors_ld"] == 34  # one row of four, and 30 strided ones elsewhere
    assert got["ptx_global_unique_sectors_st"] == 4
    assert got["ptx_local_loads"] == got["ptx_local_stores"] == 3


def test_arithmetic_counters(load):
    got = counters(
        load,
        """setp.lt.u32 %p1, %r0, 8; mov.f32 %f1, 0f3F800000; fma.rn.f32 %f2, %f1, %f1, %f1;
        @%p1 fma.rn.f32 %f2, %f1, %f1, %f1; add.f32 %f3, %f1, %f1; mul.f32 %f3, %f1, %f1;
        mov.f64 %fd1, 0d0000000000000000; fma.rn.f64 %fd2, %fd1, %fd1, %fd1; bar.sync 0;""",
        block=(64, 1, 1),
        grid=(2, 1, 1),
    )
    fma = 2 * (64 + 8)
    assert got["ptx_thread_fma"] == got["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == fma
    assert got["ptx_thread_flops"] == 2 * fma + 2 * 64 * 2 + 2 * 64 * 2
    assert got["ptx_barriers"] == 4
    assert got["ptx_block_barriers"] == 2
    # The guarded fma doesn't count for the second warp of each block; the final ret does.
    assert got["ptx_instructions"] == 2 * (2 * 9 - 1 + 2 * 2)


SHARED_START = "mov.u32 %r1, tile; shl.b32 %r2, %r0, 5; add.u32 %r3, %r1, %r2; "


def shared_widths(load, body: str, module: str = TILE) -> tuple[dict[int, int], dict[int, int]]:
    return load(entry("u64", LANE + SHARED_START + body, module=module)).shared_widths("kernel")


@pytest.mark.parametrize(
    ("offsets", "widths"),
    [
        ((0, 4, 8, 12), {16: 1}),
        ((12, 4, 8, 0), {16: 1}),
        ((0, 4), {8: 1}),
        ((4, 8), {4: 2}),  # not aligned to a pair
        ((0, 4, 8), {16: 1}),  # three of four: the fourth is read as well
        ((4, 8, 12), {16: 1}),
        ((0, 8), {4: 2}),
        ((0, 4, 8, 12, 16, 20, 28), {16: 2}),
        ((0, 4, 16, 20), {8: 2}),
    ],
)
def test_neighbouring_shared_loads_become_one(load, offsets, widths):
    body = " ".join(f"ld.shared.f32 %f{i}, [%r3+{offset}];" for i, offset in enumerate(offsets))
    assert shared_widths(load, body) == (widths, {})


@pytest.mark.parametrize(
    ("between", "widths"),
    [
        ("", {8: 1}),
        ("mul.f32 %f9, %f1, %f1;", {8: 1}),
        ("shfl.sync.down.b32 %r9, %r0, 1, 31, -1;", {8: 1}),
        ("ld.shared.f32 %f8, [%r1];", {8: 1, 4: 1}),
        ("st.shared.f32 [%r1], %f1;", {4: 2}),
        ("bar.sync 0;", {4: 2}),
        ("bar.warp.sync -1;", {4: 2}),
        ("next: bra.uni after; after:", {4: 2}),
        ("mov.u32 %r3, %r1;", {4: 2}),
    ],
)
def test_what_keeps_loads_apart(load, between, widths):
    loads, _ = shared_widths(load, f"ld.shared.f32 %f1, [%r3]; {between} ld.shared.f32 %f2, [%r3+4];")
    assert loads == widths


@pytest.mark.parametrize(
    ("scale", "widths"),
    [
        ("shl.b32 %r2, %r0, 4;", {16: 1}),
        ("shl.b32 %r2, %r0, 3;", {8: 2}),
        ("shl.b32 %r2, %r0, 2;", {4: 4}),
        ("and.b32 %r2, %r0, -16;", {16: 1}),
        ("mul.lo.u32 %r2, %r0, 48;", {16: 1}),
        ("mul.lo.u32 %r2, %r0, 20;", {4: 4}),
    ],
)
def test_merging_needs_an_alignment_that_shows(load, scale, widths):
    body = f"{scale} add.u32 %r3, %r1, %r2; " + " ".join(
        f"ld.shared.f32 %f{i}, [%r3+{4 * i}];" for i in range(4)
    )
    assert shared_widths(load, body) == (widths, {})


def test_level_0_of_ptxas_joins_nothing(load):
    body = " ".join(
        f"ld.shared.f32 %f{i}, [%r3+{4 * i}]; st.shared.f32 [%r3+{4 * i}], %f9;" for i in range(4)
    )
    body = body + " bar.sync 0; " + " ".join(f"ld.shared.f32 %f{i}, [%r3+{4 * i}];" for i in range(4))
    text = entry("u64", LANE + SHARED_START + body, module=TILE)
    assert load(text).shared_widths("kernel") == ({4: 4, 16: 1}, {4: 4})
    assert load(text, joins_accesses=False).shared_widths("kernel") == ({4: 8}, {4: 4})


def test_volatile_wide_and_half_loads(load):
    volatile = "ld.volatile.shared.f32 %f1, [%r3]; ld.volatile.shared.f32 %f2, [%r3+4];"
    assert shared_widths(load, volatile) == ({4: 2}, {})
    assert shared_widths(
        load, "ld.shared.v2.f32 {%f1, %f2}, [%r3]; ld.shared.v2.f32 {%f3, %f4}, [%r3+8];"
    ) == ({16: 1}, {})
    assert shared_widths(load, "ld.shared.u16 %h1, [%r3]; ld.shared.u16 %h2, [%r3+2];") == ({4: 1}, {})


def test_neighbouring_stores_become_one(load):
    four = "st.shared.f32 [%r3], %f1; st.shared.f32 [%r3+4], %f1; st.shared.f32 [%r3+8], %f1;"
    assert shared_widths(load, four) == ({}, {8: 1, 4: 1})
    assert shared_widths(load, four + " st.shared.f32 [%r3+12], %f1;") == ({}, {16: 1})
    apart = "st.shared.f32 [%r3], %f1; st.shared.f32 [%r3+16], %f1; st.shared.f32 [%r3+4], %f1;"
    assert shared_widths(load, apart) == ({}, {4: 3})
    loaded = "st.shared.f32 [%r3], %f1; ld.shared.f32 %f2, [%r1]; st.shared.f32 [%r3+4], %f1;"
    assert shared_widths(load, loaded) == ({4: 1}, {4: 2})


def test_merged_loads_cost_what_the_wide_one_does(load):
    got = counters(
        load,
        SHARED_START.replace("shl.b32 %r2, %r0, 5", "shl.b32 %r2, %r0, 4")
        + """st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0}; bar.sync 0;
        ld.shared.f32 %f1, [%r3]; ld.shared.f32 %f2, [%r3+4]; ld.shared.f32 %f3, [%r3+8]; ld.shared.f32 %f4, [%r3+12];
        shl.b32 %r5, %r0, 7; add.u32 %r5, %r5, %r1; ld.shared.f32 %f5, [%r5+4];""".replace(
            "[%r5+4]", "[%r3+4]"
        ).replace("shl.b32 %r5, %r0, 7; add.u32 %r5, %r5, %r1; ", "bar.sync 0; "),
    )
    assert got["ptx_shared_loads"] == 5
    assert got["smsp__inst_executed_op_shared_ld.sum"] == 2
    # The merged load takes four phases; the last one falls four times into each of eight banks.
    assert got["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 4 + 4
    assert got["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 3
    assert got["smsp__inst_executed_op_shared_st.sum"] == 1
    assert got["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"] == 4
    assert got["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"] == 0
    assert got["ptx_thread_shared_loads"] == 5 * WARP
    assert got["ptx_thread_shared_stores"] == 4 * WARP


def test_counting_is_optional_and_adds_up_over_launches(load):
    executor = load(entry("u64", "ld.param.u64 %rd0, [p0]; ld.global.f32 %f1, [%rd0];"))
    buffers = {"A": np.zeros(4, np.float32)}
    assert executor.run([launch("A")], buffers).counters == {}
    name = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
    assert executor.run([launch("A")] * 3, buffers, count=True).counters[name] == 3
    assert executor.run([launch("A")], buffers, count=True).counters[name] == 1
