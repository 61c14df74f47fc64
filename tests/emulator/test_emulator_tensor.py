"""Asynchronous copies, ldmatrix, mma.sync and wmma."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_pieces import WARP, entry, launch, run_once

LANE = "\tmov.u32 %r0, %tid.x;\n"
TILE = ".shared .align 16 .b8 tile[4096];\n"


def kernel(load, parameters: str, body: str, **options):
    return load(entry(parameters, LANE + body, module=TILE, **options))


# ---- cp.async ----

COPY = """ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1;
    mad.wide.u32 %rd2, %r0, 16, %rd0; mad.wide.u32 %rd3, %r0, 16, %rd1;
    cp.async.cg.shared.global [%r2], [%rd2], 16SIZE; cp.async.commit_group; WAIT
    READ st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4};"""
OWN = "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r2];"
OTHERS = "xor.b32 %r3, %r2, 496; ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r3];"


def copy(load, *, size="", wait="cp.async.wait_group 0;", read=OWN, count=False):
    body = COPY.replace("SIZE", size).replace("WAIT", wait).replace("READ", read)
    source, out = np.arange(128, dtype=np.float32), np.full(128, -1, np.float32)
    execution = run_once(
        kernel(load, "u64 u64", body), launch("in", "out"), {"in": source, "out": out}, count=count
    )
    return source, out, execution


def test_data_land_at_the_wait(load):
    source, out, execution = copy(load)
    assert not execution.findings
    np.testing.assert_array_equal(out, source)
    source, out, execution = copy(load, wait="cp.async.wait_all;")
    assert not execution.findings
    np.testing.assert_array_equal(out, source)


def test_a_missing_wait_is_found_and_shows(load):
    for wait in ("", "cp.async.wait_group 1;", "bar.sync 0;"):
        _, out, execution = copy(load, wait=wait)
        assert [finding.kind for finding in execution.findings] == ["race"]
        assert "its own asynchronous copy, not waited for" in execution.findings[0].message
        assert np.isnan(out).all()


def test_other_threads_need_a_barrier_after_the_wait(load):
    source, out, execution = copy(load, wait="cp.async.wait_group 0; bar.sync 0;", read=OTHERS)
    assert not execution.findings
    np.testing.assert_array_equal(out.reshape(32, 4), source.reshape(32, 4)[np.arange(32) ^ 31])
    _, _, execution = copy(load, read=OTHERS)
    assert [finding.kind for finding in execution.findings] == ["race"]
    _, _, execution = copy(load, wait="bar.sync 0; cp.async.wait_group 0;", read=OTHERS)
    assert [finding.kind for finding in execution.findings] == ["race"]


def test_source_size_fills_with_zeroes(load):
    source, out, _ = copy(load, size=", 8")
    np.testing.assert_array_equal(out.reshape(32, 4)[:, :2], source.reshape(32, 4)[:, :2])
    assert not out.reshape(32, 4)[:, 2:].any()
    # A lane that reads nothing may name any address, and isn't counted.
    body = (
        COPY.replace("SIZE", ", %r9")
        .replace("WAIT", "cp.async.wait_all;")
        .replace("READ", OWN)
        .replace(
            "cp.async.cg",
            "setp.lt.u32 %p1, %r0, 8; selp.u32 %r9, 16, 0, %p1; @!%p1 mov.u64 %rd2, 0; cp.async.cg",
        )
    )
    out = np.full(128, -1, np.float32)
    buffers = {"in": source, "out": out}
    execution = run_once(kernel(load, "u64 u64", body), launch("in", "out"), buffers, count=True)
    assert not execution.findings
    np.testing.assert_array_equal(out, np.where(np.arange(128) < 32, source, 0))
    assert execution.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1
    assert execution.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4
    assert execution.counters["ptx_async_copies"] == 1
    assert execution.counters["smsp__inst_executed_op_global_ld.sum"] == 0


def test_groups_end_in_order(load):
    body = """ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        mad.wide.u32 %rd2, %r0, 4, %rd0; mad.wide.u32 %rd3, %r0, 4, %rd1;
        cp.async.ca.shared.global [%r2], [%rd2], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r2+128], [%rd2+128], 4; cp.async.commit_group;
        cp.async.wait_group 1; ld.shared.f32 %f1, [%r2]; st.global.f32 [%rd3], %f1;
        cp.async.wait_group 0; ld.shared.f32 %f2, [%r2+128]; st.global.f32 [%rd3+128], %f2;"""
    source, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    execution = run_once(kernel(load, "u64 u64", body), launch("in", "out"), {"in": source, "out": out})
    assert not execution.findings
    np.testing.assert_array_equal(out, source)


def test_copies_out_of_bounds_and_misaligned(load):
    body = COPY.replace("SIZE", "").replace("WAIT", "cp.async.wait_all;").replace("READ", OWN)
    executor = kernel(load, "u64 u64", body)
    buffers = {"in": np.zeros(124, np.float32), "out": np.zeros(128, np.float32)}
    finding = run_once(executor, launch("in", "out"), buffers).findings[0]
    assert (finding.kind, finding.thread, finding.count) == ("out_of_bounds", (31, 0, 0), 1)
    executor = kernel(load, "u64 u64", body.replace("[%r2], [%rd2]", "[%r2], [%rd2+4]"))
    finding = run_once(executor, launch("in", "out"), {**buffers, "in": np.zeros(256, np.float32)}).findings[
        0
    ]
    assert (finding.kind, finding.count) == ("misaligned", WARP)


BETWEEN = {
    "nothing": ("", 3),
    "a commit": ("cp.async.commit_group;", 3),
    "a wait": ("cp.async.wait_all;", 3),
    "a global load": ("ld.global.f32 %f1, [%rd2];", 3),
    "a short branch": ("setp.lt.u32 %p1, %r0, 8; @%p1 bra next; add.u32 %r9, %r0, 1; next:", 3),
    "a shared store": ("st.shared.f32 [%r2+2048], %f1;", 6),
    "a generic store": ("st.f32 [%rd3], %f1;", 6),
    "a barrier": ("bar.sync 0;", 6),
    "a __syncwarp": ("bar.warp.sync -1;", 6),
    "a branch over a store": ("setp.lt.u32 %p1, %r0, 8; @%p1 bra next; st.global.f32 [%rd3], %f1; next:", 6),
    "a long branch": (f"setp.lt.u32 %p1, %r0, 8; @%p1 bra next; {'add.u32 %r9, %r0, 1;' * 17} next:", 6),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_copies_come_after_switched_off_loads(load, between):
    text, padding = BETWEEN[between]
    body = (
        COPY.replace("SIZE;", f"; {text} cp.async.cg.shared.global [%r2+512], [%rd2], 16;")
        .replace("SIZE", "")
        .replace("WAIT", "cp.async.wait_all;")
        .replace("READ", "")
    )
    ptx = entry("u64 u64", LANE + body, module=TILE)
    buffers = {"in": np.zeros(128, np.float32), "out": np.zeros(128, np.float32)}
    for architecture, expected in (("sm_90", padding), ("sm_100a", padding), ("sm_89", 0)):
        executor = load(ptx.replace("sm_90", architecture))
        counters = run_once(executor, launch("in", "out", grid=(2, 1, 1)), buffers, count=True).counters
        assert counters["smsp__inst_executed_op_shared_ld.sum"] == 2 * expected
        assert counters["ptx_shared_loads"] == 0


# ---- ldmatrix ----


@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(load, matrices, transposed):
    places = [f"%r{20 + i}" for i in range(matrices)]
    stores = "".join(f"st.global.u32 [%rd3+{128 * i}], {place};" for i, place in enumerate(places))
    body = f"""ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 48, %r1;
        mad.wide.u32 %rd2, %r0, 16, %rd0; mad.wide.u32 %rd3, %r0, 4, %rd1;
        ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd2];
        st.shared.v4.u32 [%r2], {{%r3, %r4, %r5, %r6}}; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x{matrices}{".trans" * transposed}.shared.b16 {{{", ".join(places)}}}, [%r2];
        {stores}"""
    rows = np.arange(32 * 8, dtype=np.uint16).reshape(4, 8, 8)
    out = np.zeros((matrices, WARP, 2), np.uint16)
    executor = kernel(load, "u64 u64", body)
    execution = run_once(
        executor, launch("in", "out"), {"in": rows.reshape(-1), "out": out.reshape(-1)}, count=True
    )
    assert not execution.findings
    for matrix in range(matrices):
        expected = rows[matrix].T if transposed else rows[matrix]
        np.testing.assert_array_equal(out[matrix], expected.reshape(WARP, 2))
    # Nsight Compute counts LDS alone.
    assert execution.counters["smsp__inst_executed_op_shared_ld.sum"] == 0
    assert execution.counters["ptx_shared_loads"] == 1
    # Rows 48 bytes apart: eight of them fill all banks once.
    assert execution.counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == matrices


def test_ldmatrix_without_syncwarp_races(load):
    body = """mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1; st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];"""
    findings = run_once(kernel(load, "u64", body), launch("out"), {"out": np.zeros(4, np.uint32)}).findings
    assert [finding.kind for finding in findings] == ["race"]


# ---- mma.sync ----


def fragments(matrix: np.ndarray, places) -> np.ndarray:
    """Return, for each lane, the elements at places(lane)."""
    return np.array([[matrix[row, column] for row, column in places(lane)] for lane in range(WARP)])


def places_a(depth: int, packed: bool):
    def places(lane: int) -> list[tuple[int, int]]:
        group, member = divmod(lane, 4)
        if packed:
            columns = [(2 * member + 8 * half, 2 * member + 1 + 8 * half) for half in range(depth // 8)]
        else:
            columns = [(member + 4 * half,) for half in range(depth // 4)]
        return [(group + 8 * low, column) for pair in columns for low in (0, 1) for column in pair]

    return places


def places_b(depth: int, packed: bool):
    def places(lane: int) -> list[tuple[int, int]]:
        group, member = divmod(lane, 4)
        if packed:
            return [(2 * member + i + 8 * half, group) for half in range(depth // 8) for i in (0, 1)]
        return [(member + 4 * half, group) for half in range(depth // 4)]

    return places


def places_c(lane: int) -> list[tuple[int, int]]:
    group, member = divmod(lane, 4)
    return [(group + 8 * low, 2 * member + i) for low in (0, 1) for i in (0, 1)]


def to_bits(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = values.astype(np.float32).view(np.uint32)
    return bits >> 16 if kind == "bf16" else bits


def pack(bits: np.ndarray) -> np.ndarray:
    return bits[:, 0::2] | bits[:, 1::2] << 16


@pytest.mark.parametrize(
    ("shape", "kind", "sums"),
    [
        ("m16n8k16", "f16", "f32"),
        ("m16n8k8", "f16", "f32"),
        ("m16n8k16", "bf16", "f32"),
        ("m16n8k8", "tf32", "f32"),
        ("m16n8k4", "tf32", "f32"),
        ("m16n8k16", "f16", "f16"),
    ],
)
def test_mma(load, shape, kind, sums):
    depth = int(shape.rsplit("k", 1)[1])
    rng = np.random.default_rng(1)
    # Small integers: exact in every format and order of summation.
    a, b = rng.integers(-8, 9, (16, depth)), rng.integers(-8, 9, (depth, 8))
    c = rng.integers(-100, 101, (16, 8))
    packed = kind != "tf32"
    a_bits, b_bits = (
        to_bits(fragments(m, p(depth, packed)), kind) for m, p in ((a, places_a), (b, places_b))
    )
    c_bits = to_bits(fragments(c, places_c), sums if sums == "f16" else "f32")
    operands = [
        pack(a_bits) if packed else a_bits,
        pack(b_bits) if packed else b_bits,
        pack(c_bits) if sums == "f16" else c_bits,
    ]
    registers, loads, names = 20, "", []
    for i, bits in enumerate(operands):
        names.append([f"%r{registers + j}" for j in range(bits.shape[1])])
        loads += f"ld.param.u64 %rd0, [p{i}]; mad.wide.u32 %rd1, %r0, {4 * bits.shape[1]}, %rd0;"
        loads += "".join(f"ld.global.u32 {name}, [%rd1+{4 * j}];" for j, name in enumerate(names[-1]))
        registers += bits.shape[1]
    listed = ["{" + ", ".join(group) + "}" for group in names]
    stores = "".join(f"st.global.u32 [%rd1+{4 * j}], {name};" for j, name in enumerate(names[2]))
    body = f"""{loads} mma.sync.aligned.{shape}.row.col.{sums}.{kind}.{kind}.{sums}
        {listed[2]}, {listed[0]}, {listed[1]}, {listed[2]};
        ld.param.u64 %rd0, [p3]; mad.wide.u32 %rd1, %r0, {4 * len(names[2])}, %rd0; {stores}"""
    out = np.zeros(operands[2].shape, np.uint32)
    buffers = {name: bits.astype(np.uint32).reshape(-1) for name, bits in zip("abc", operands, strict=True)}
    execution = run_once(
        kernel(load, "u64 u64 u64 u64", body),
        launch(*"abc", "out"),
        {**buffers, "out": out.reshape(-1)},
        count=True,
    )
    assert not execution.findings
    got = out.view(np.float16).astype(np.float32) if sums == "f16" else out.view(np.float32)
    np.testing.assert_array_equal(got, fragments(a @ b + c, places_c))
    assert execution.counters["ptx_tensor_flops"] == 2 * 16 * 8 * depth


def test_tf32_ignores_the_low_bits(load):
    body = """mov.b32 %r1, 0f3F801FFF; mov.b32 %r2, 0f3F800000; mov.f32 %f1, 0f00000000;
        mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f2, %f3, %f4, %f5}, {%r1, %r1}, {%r2},
            {%f1, %f1, %f1, %f1};
        ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.f32 [%rd1], %f2;"""
    out = np.zeros(WARP, np.float32)
    run_once(kernel(load, "u64", body), launch("out"), {"out": out})
    assert (out == 4).all()


# ---- wmma ----


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize(("kind", "sums"), [("f16", "f32"), ("bf16", "f32"), ("f16", "f16")])
@pytest.mark.parametrize("layouts", ["row.col", "col.row"])
def test_wmma(load, space, kind, sums, layouts):
    rng = np.random.default_rng(2)
    a, b, c = rng.integers(-8, 9, (16, 16)), rng.integers(-8, 9, (16, 16)), rng.integers(-99, 100, (16, 16))
    stride = 24
    a_layout, b_layout = layouts.split(".")

    def lay(matrix: np.ndarray, layout: str, form: str) -> np.ndarray:
        padded = np.zeros((16, stride), np.float32)
        padded[:, :16] = matrix if layout == "row" else matrix.T
        bits = to_bits(padded.reshape(-1), form)
        return bits.astype(np.uint16) if form != "f32" else bits.view(np.float32)

    buffers = {
        "a": lay(a, a_layout, kind),
        "b": lay(b, b_layout, kind),
        "c": lay(c, "row", sums),
        "out": np.zeros(16 * stride, np.uint16 if sums == "f16" else np.uint32),
    }
    factor = 8 if kind == "f16" else 4
    total = 4 if sums == "f16" else 8
    names = {
        "a": [f"%r{10 + i}" for i in range(factor)],
        "b": [f"%r{20 + i}" for i in range(factor)],
        "c": [f"%r{30 + i}" for i in range(total)],
    }
    listed = {name: "{" + ", ".join(group) + "}" for name, group in names.items()}
    moves, where = "", {name: f"%rd{10 + i}" for i, name in enumerate(buffers)}
    for i, (name, values) in enumerate(buffers.items()):
        moves += f"ld.param.u64 %rd{10 + i}, [p{i}];"
        if space == "shared" and name != "out":
            words = values.nbytes // 4
            base = 1024 * i if name != "c" else 2048
            moves += f"""mov.u32 %r50, %r0; copy{i}: mad.wide.u32 %rd1, %r50, 4, %rd{10 + i};
                ld.global.u32 %r51, [%rd1];
                mov.u32 %r52, tile; mad.lo.u32 %r53, %r50, 4, %r52; st.shared.u32 [%r53+{base}], %r51;
                add.u32 %r50, %r50, 32; setp.lt.u32 %p1, %r50, {words}; @%p1 bra copy{i};"""
            where[name] = f"tile+{base}"
    types = f"{sums}.{sums}" if kind == "f16" else f"{sums}.{kind}.{kind}.{sums}"
    mma = f"wmma.mma.sync.aligned.{layouts}.m16n16k16.{types}"
    body = f"""{moves} bar.sync 0;
        wmma.load.a.sync.aligned.{a_layout}.m16n16k16.{space}.{kind} {listed["a"]}, [{where["a"]}], {stride};
        wmma.load.b.sync.aligned.{b_layout}.m16n16k16.{space}.{kind} {listed["b"]}, [{where["b"]}], {stride};
        wmma.load.c.sync.aligned.row.m16n16k16.{space}.{sums} {listed["c"]}, [{where["c"]}], {stride};
        {mma} {listed["c"]}, {listed["a"]}, {listed["b"]}, {listed["c"]};
        wmma.store.d.sync.aligned.row.m16n16k16.global.{sums} [{where["out"]}], {listed["c"]}, {stride};"""
    execution = run_once(kernel(load, "u64 u64 u64 u64", body), launch(*buffers), buffers, count=True)
    assert not execution.findings
    # The factors come by LDSM; c by four LDS, of two elements each.
    expected = 4 if space == "shared" else 0
    assert execution.counters["smsp__inst_executed_op_shared_ld.sum"] == expected
    out = buffers["out"].view(np.float16 if sums == "f16" else np.float32).reshape(16, stride)
    np.testing.assert_array_equal(out[:, :16], a @ b + c)
    assert not out[:, 16:].any()


def test_wmma_without_syncwarp_races(load):
    body = """mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1; st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};
        wmma.load.a.sync.aligned.row.m16n16k16.shared.f16
            {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [tile], 16;"""
    findings = run_once(kernel(load, "u64", body), launch("out"), {"out": np.zeros(4, np.uint32)}).findings
    assert [finding.kind for finding in findings] == ["race"]
