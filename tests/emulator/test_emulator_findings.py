"""Each kind of finding: at the right line, block and thread; and none on a correct kernel."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_pieces import WARP, entry, launch, run_once

from gemmlab.executors.base import FINDING_KINDS

LANE = "\tmov.u32 %r0, %tid.x;\n"
TILE = ".shared .align 4 .b8 tile[1024];\n"
# Each line of a body is a source line, counted from 10.
FILES = '\n.file 1 "kernels/07_example.cu"\n.file 2 "/toolkit/include/helpers.hpp"\n'


def kernel(load, body: str, *, parameters: str = "u64", module: str = TILE, **options):
    lines = [f".loc 1 {10 + i} 3\n{line}" for i, line in enumerate(body.strip().splitlines())]
    return load(entry(parameters, LANE + "\n".join(lines), module=module) + FILES, **options)


def only(findings):
    assert len(findings) == 1, findings
    assert findings[0].kind in FINDING_KINDS
    return findings[0]


def test_read_of_what_another_warp_wrote(load):
    executor = kernel(
        load,
        """mov.u32 %r1, %tid.y; mad.lo.u32 %r0, %r1, 8, %r0; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        st.shared.u32 [%r2], %r0;
        bar.warp.sync -1; and.b32 %r3, %r2, 127; add.u32 %r3, %r3, %r1;
        ld.shared.u32 %r4, [%r3];""",
    )
    launched = launch("out", block=(8, 8, 1), grid=(2, 3, 1))
    finding = only(run_once(executor, launched, {"out": np.zeros(1, np.uint32)}).findings)
    assert finding.line == 13
    assert finding.file == "kernels/07_example.cu"
    assert finding.block == (0, 0, 0)
    assert finding.thread == (0, 4, 0)  # the second warp's first thread
    assert finding.other_thread == (0, 0, 0)
    assert finding.instruction == "ld.shared.u32 %r4, [%r3]"
    assert finding.count == 6 * 32
    assert finding.message == (
        "race: thread (0,4,0) of block (0,0,0) reads shared memory that thread (0,0,0) wrote with no barrier between, "
        "07_example.cu:13"
    )


def test_read_of_what_another_lane_wrote_needs_syncwarp(load):
    body = """mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        st.shared.u32 [%r2], %r0;
        SYNC
        xor.b32 %r3, %r2, 4;
        ld.shared.u32 %r4, [%r3];"""
    out = {"out": np.zeros(1, np.uint32)}
    finding = only(run_once(kernel(load, body.replace("SYNC", "// none")), launch("out"), out).findings)
    assert (finding.kind, finding.line, finding.thread, finding.other_thread) == (
        "race",
        14,
        (0, 0, 0),
        (1, 0, 0),
    )
    assert "__syncwarp" in finding.message
    assert not run_once(kernel(load, body.replace("SYNC", "bar.warp.sync -1;")), launch("out"), out).findings
    assert not run_once(kernel(load, body.replace("SYNC", "bar.sync 0;")), launch("out"), out).findings


def test_write_over_what_another_thread_still_reads(load):
    body = """mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
        bar.sync 0;
        xor.b32 %r3, %r2, OTHER; ld.shared.u32 %r4, [%r3];
        SYNC
        add.u32 %r5, %r0, 1; st.shared.u32 [%r2], %r5;"""
    out = {"out": np.zeros(1, np.uint32)}
    for other, sync, thread, partner in (
        ("128", "// none", (32, 0, 0), (0, 0, 0)),  # another warp
        ("4", "// none", (0, 0, 0), (1, 0, 0)),  # another lane
        ("128", "bar.warp.sync -1;", (32, 0, 0), (0, 0, 0)),
    ):
        executor = kernel(load, body.replace("OTHER", other).replace("SYNC", sync))
        findings = run_once(executor, launch("out", block=(64, 1, 1)), out).findings
        finding = next(f for f in findings if f.instruction.startswith("st."))
        assert (finding.kind, finding.line) == ("race", 14)
        assert finding.thread == thread
        assert finding.other_thread == partner
    for other, sync in (("128", "bar.sync 0;"), ("4", "bar.warp.sync -1;"), ("0", "// none")):
        executor = kernel(load, body.replace("OTHER", other).replace("SYNC", sync))
        assert not run_once(executor, launch("out", block=(64, 1, 1)), out).findings


def test_write_over_what_all_read(load):
    executor = kernel(
        load,
        """setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [tile], %r0;
        bar.sync 0;
        ld.shared.u32 %r4, [tile];
        @%p1 st.shared.u32 [tile], 7;""",
    )
    finding = only(run_once(executor, launch("out"), {"out": np.zeros(1, np.uint32)}).findings)
    assert (finding.kind, finding.line, finding.thread) == ("race", 13, (0, 0, 0))
    assert "several threads" in finding.message


def test_two_writers_of_different_values(load):
    body = "mov.u32 %r1, VALUE;\nst.shared.u32 [tile], %r1;\nbar.sync 0;"
    out = {"out": np.zeros(1, np.uint32)}
    finding = only(run_once(kernel(load, body.replace("VALUE", "%tid.x")), launch("out"), out).findings)
    assert (finding.kind, finding.line, finding.thread, finding.other_thread) == (
        "race",
        11,
        (1, 0, 0),
        (0, 0, 0),
    )
    same = run_once(kernel(load, body.replace("VALUE", "5")), launch("out", block=(64, 1, 1)), out)
    assert not same.findings  # all write one value


def test_uninitialised_read_in_every_block(load):
    executor = kernel(
        load,
        """setp.lt.u32 %p1, %r0, 20; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        @%p1 st.shared.u32 [%r2], %r0;
        ld.shared.u32 %r3, [%r2];""",
    )
    finding = only(
        run_once(executor, launch("out", grid=(3, 1, 1)), {"out": np.zeros(1, np.uint32)}).findings
    )
    assert (finding.kind, finding.line) == ("uninitialised_read", 12)
    assert (finding.block, finding.thread) == ((0, 0, 0), (20, 0, 0))
    assert finding.count == 3 * 12


def test_reads_and_writes_out_of_bounds(load):
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r9, %ctaid.x; mad.lo.u32 %r1, %r9, 32, %r0;
        mad.wide.u32 %rd2, %r1, 4, %rd0; mad.wide.u32 %rd3, %r1, 4, %rd1;
        ld.global.u32 %r2, [%rd2];
        st.global.u32 [%rd3], %r2;""",
        parameters="u64 u64",
    )
    source, out = np.arange(50, dtype=np.uint32), np.zeros(60, np.uint32)
    guarded = np.zeros(80, np.uint32)
    for find in (True, False):  # stray accesses are found in any case, and touch nothing
        out = guarded[:60]
        execution = run_once(
            executor, launch("in", "out", grid=(2, 1, 1)), {"in": source, "out": out}, find=find
        )
        load_finding, store_finding = execution.findings
        assert (load_finding.kind, load_finding.line) == ("out_of_bounds", 12)
        assert (load_finding.block, load_finding.thread, load_finding.count) == ((1, 0, 0), (18, 0, 0), 14)
        assert "bytes 200 to 203 of buffer in, which has 200" in load_finding.message
        assert (store_finding.line, store_finding.thread, store_finding.count) == (13, (28, 0, 0), 4)
        np.testing.assert_array_equal(out[:50], source)
        assert (out[50:60] == 0xFFFFFFFF).all()  # junk, a NaN
        assert not guarded[60:].any()


def test_address_before_a_buffer_and_null(load):
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p1];
        ld.global.f32 %f1, [%rd0+-8];
        mov.u64 %rd1, 0; ld.global.f32 %f2, [%rd1];""",
        parameters="u64 u64",
    )
    buffers = {"A": np.zeros(4, np.float32), "B": np.zeros(4, np.float32)}
    before, null = run_once(executor, launch("A", "B"), buffers).findings
    assert "bytes -8 to -5 of buffer B" in before.message
    assert "address 0x0, where no buffer lies" in null.message
    first = run_once(executor, launch("B", "A"), buffers).findings[0]
    assert "bytes -8 to -5 of buffer A" in first.message


def test_shared_memory_out_of_bounds(load):
    executor = kernel(
        load,
        """mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        st.shared.u32 [%r2+960], %r0;
        st.shared.v2.u32 [%r2+-8], {%r0, %r0};""",
    )
    beyond, before, crooked = run_once(executor, launch("out"), {"out": np.zeros(1, np.uint32)}).findings
    assert (beyond.kind, beyond.line, beyond.thread, beyond.count) == ("out_of_bounds", 11, (16, 0, 0), 16)
    assert "bytes 1024 to 1027 of shared memory, which has 1024" in beyond.message
    assert (before.kind, before.line, before.thread) == ("out_of_bounds", 12, (0, 0, 0))
    assert (crooked.kind, crooked.thread, crooked.count) == ("misaligned", (3, 0, 0), 15)


def test_misaligned_vector_load(load):
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0;
        ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];""",
    )
    finding = only(run_once(executor, launch("A"), {"A": np.zeros(64, np.float32)}).findings)
    assert (finding.kind, finding.line, finding.thread, finding.count) == ("misaligned", 11, (1, 0, 0), 24)
    assert "16 bytes at byte 4 of buffer A" in finding.message


def test_barrier_reached_by_part_of_a_warp(load):
    executor = kernel(
        load,
        """setp.lt.u32 %p1, %r0, 8; @!%p1 bra skip;
        bar.sync 0;
        skip: mov.u32 %r1, 1;
        bar.sync 0;""",
    )
    finding = run_once(executor, launch("out", block=(64, 1, 1)), {"out": np.zeros(1, np.uint32)}).findings[0]
    assert (finding.kind, finding.line, finding.thread) == ("divergent_barrier", 11, (0, 0, 0))
    assert "only 8 of the 32 live lanes" in finding.message


def test_barriers_of_two_places_meet(load):
    executor = kernel(
        load,
        """setp.lt.u32 %p1, %r0, 32; @%p1 bra other;
        bar.sync 0; ret;
        other: bar.sync 0;""",
    )
    finding = only(
        run_once(executor, launch("out", block=(64, 1, 1)), {"out": np.zeros(1, np.uint32)}).findings
    )
    assert (finding.kind, finding.line, finding.thread) == ("divergent_barrier", 11, (32, 0, 0))
    assert "line 12" in finding.message


def test_shuffle_without_all_its_lanes(load):
    executor = kernel(
        load,
        """setp.lt.u32 %p1, %r0, 16; @!%p1 bra end;
        shfl.sync.down.b32 %r2, %r0, 1, 31, -1;
        end: bar.warp.sync -1;""",
    )
    finding = only(run_once(executor, launch("out"), {"out": np.zeros(1, np.uint32)}).findings)
    assert (finding.kind, finding.line) == ("divergent_barrier", 11)


@pytest.mark.parametrize(
    ("instruction", "mask"),
    [
        ("shfl.sync.bfly.b32 %r2, %r0, 0, 31, {};", 0xFFFF),
        ("shfl.sync.bfly.b32 %r2, %r0, 0, 31, {};", 0xFFFFFFFD),
        ("vote.sync.ballot.b32 %r2, %p1, {};", 0x1),
        ("vote.sync.any.pred %p2, %p1, {};", 0x55555555),
        ("match.any.sync.b32 %r2, %r0, {};", 0xFFFF0000),
        ("redux.sync.add.u32 %r2, %r0, {};", 0xFFFF),
        ("elect.sync %r2|%p2, {};", 0xFFFF),
        ("bar.warp.sync {};", 0xFFFF),
    ],
)
def test_a_lane_outside_its_own_mask(load, instruction, mask):
    body = f"setp.ne.u32 %p1, %r0, 0;\n{instruction}"
    out = {"out": np.zeros(1, np.uint32)}
    for find in (True, False):
        executor = kernel(load, body.format(mask))
        finding = only(run_once(executor, launch("out", grid=(1, 2, 1)), out, find=find).findings)
        outside = [lane for lane in range(WARP) if not mask >> lane & 1]
        assert (finding.kind, finding.line) == ("divergent_barrier", 11)
        assert (finding.block, finding.thread) == ((0, 0, 0), (outside[0], 0, 0))
        assert finding.count == 2 * len(outside)
        assert f"mask 0x{mask:08x}, which doesn't name its own lane {outside[0]}" in finding.message
    assert not run_once(kernel(load, body.format("0xffffffff")), launch("out"), out).findings


def test_shuffle_from_a_lane_outside_the_mask(load):
    # Half warps with masks of their own, of which each lane reads the lane 16 away.
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; and.b32 %r1, %r0, 16; shl.b32 %r2, 0xffff, %r1;
        shfl.sync.bfly.b32 %r3, %r0, DISTANCE, 31, %r2;
        st.global.u32 [%rd1], %r3;""".replace("DISTANCE", "16"),
    )
    out = np.zeros(WARP, np.uint32)
    finding = only(run_once(executor, launch("out"), {"out": out}).findings)
    assert (finding.kind, finding.line, finding.count) == ("uninitialised_read", 11, 32)
    assert (finding.thread, finding.other_thread) == ((0, 0, 0), (16, 0, 0))
    assert "lane 16 of its warp, which its mask doesn't name" in finding.message
    assert (out == 0xFFFFFFFF).all()


def test_shuffle_from_a_lane_that_is_elsewhere_may_be_thrown_away(load):
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; setp.ge.u32 %p1, %r0, 20;
        vote.sync.ballot.b32 %r2, !%p1, -1; @%p1 bra end;
        shfl.sync.down.b32 %r3, %r0, 16, 31, %r2; st.global.u32 [%rd1], %r3;
        end: bar.sync 0;""",
    )
    out = np.zeros(WARP, np.uint32)
    assert not run_once(executor, launch("out"), {"out": out}).findings
    np.testing.assert_array_equal(out[:20], [*range(16, 20), *[0xFFFFFFFF] * 12, *range(16, 20)])


def test_lanes_that_name_one_another_with_different_masks(load):
    executor = kernel(
        load,
        """setp.lt.u32 %p1, %r0, 16; selp.b32 %r1, 0xffffffff, 0xffff0000, %p1;
        bar.warp.sync %r1;""",
    )
    finding = only(run_once(executor, launch("out"), {"out": np.zeros(1, np.uint32)}).findings)
    assert (finding.kind, finding.line) == ("divergent_barrier", 11)
    assert (finding.thread, finding.other_thread) == ((0, 0, 0), (16, 0, 0))
    assert "mask 0xffffffff together with lane 16, whose mask is 0xffff0000" in finding.message


def test_a_lane_that_its_mask_names_goes_elsewhere(load):
    executor = kernel(
        load,
        """setp.lt.u32 %p1, %r0, 24; @!%p1 bra end; and.b32 %r1, %r0, 16; shl.b32 %r2, 0xffff, %r1;
        vote.sync.ballot.b32 %r3, %p1, %r2;
        end: bar.sync 0;""",
    )
    finding = only(run_once(executor, launch("out"), {"out": np.zeros(1, np.uint32)}).findings)
    assert (finding.kind, finding.line, finding.thread) == ("divergent_barrier", 11, (16, 0, 0))
    assert "only 8 of the 16 live lanes of its mask 0xffff0000" in finding.message


HALF_MASK = "and.b32 %r5, %r0, 16; shl.b32 %r6, 0xffff, %r5;"
SYNC_BY_HALVES = {
    "one instruction": "bar.warp.sync %r6;",
    "two branches": """setp.ne.u32 %p1, %r5, 0; @%p1 bra high; bar.warp.sync 0xffff; bra both;
        high: bar.warp.sync 0xffff0000; both:""",
}


@pytest.mark.parametrize("how", SYNC_BY_HALVES)
def test_half_warps_that_meet_apart_are_not_ordered_with_each_other(load, how):
    body = f"""{HALF_MASK} mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        st.shared.u32 [%r2], %r0;
        {" ".join(SYNC_BY_HALVES[how].split())}
        xor.b32 %r3, %r2, DISTANCE;
        ld.shared.u32 %r4, [%r3];"""
    out = {"out": np.zeros(1, np.uint32)}
    finding = only(run_once(kernel(load, body.replace("DISTANCE", "64")), launch("out"), out).findings)
    assert (finding.kind, finding.line, finding.count) == ("race", 14, 32)
    assert finding.thread[0] // 16 != finding.other_thread[0] // 16
    assert "__syncwarp" in finding.message
    assert not run_once(kernel(load, body.replace("DISTANCE", "60")), launch("out"), out).findings


def test_half_warps_over_what_the_other_half_reads(load):
    body = f"""{HALF_MASK} mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; bar.sync 0;
        xor.b32 %r3, %r2, DISTANCE; ld.shared.u32 %r4, [%r3];
        bar.warp.sync %r6; ld.shared.u32 %r4, [%r2];
        add.u32 %r7, %r0, 1; st.shared.u32 [%r2], %r7;"""
    out = {"out": np.zeros(1, np.uint32)}
    finding = only(run_once(kernel(load, body.replace("DISTANCE", "64")), launch("out"), out).findings)
    assert (finding.kind, finding.line) == ("race", 13)
    assert (finding.thread, finding.other_thread) == ((0, 0, 0), (16, 0, 0))
    assert not run_once(kernel(load, body.replace("DISTANCE", "60")), launch("out"), out).findings


def test_order_is_handed_on_from_mask_to_mask(load):
    # Lane 0 writes, meets lane 1, which meets lane 2, which may read; lane 3 met nobody.
    body = """setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [tile], 7; setp.gt.u32 %p1, %r0, 1; @%p1 bra second;
        bar.warp.sync 3;
        second: setp.eq.u32 %p2, %r0, 0; setp.gt.u32 %p3, %r0, 2; @%p2 bra end; @%p3 bra read; bar.warp.sync 6;
        read: setp.ne.u32 %p4, %r0, READER; @%p4 bra end;
        ld.shared.u32 %r4, [tile];
        end: mov.u32 %r1, 0;"""
    out = {"out": np.zeros(1, np.uint32)}
    assert not run_once(kernel(load, body.replace("READER", "2")), launch("out"), out).findings
    finding = only(run_once(kernel(load, body.replace("READER", "3")), launch("out"), out).findings)
    assert (finding.kind, finding.line, finding.thread) == ("race", 14, (3, 0, 0))


def test_broadcast_of_what_the_first_reader_wrote(load):
    body = "setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [tile], 7;\nSYNC\nld.shared.u32 %r4, [tile];"
    out = {"out": np.zeros(1, np.uint32)}
    finding = only(run_once(kernel(load, body.replace("SYNC", "// none")), launch("out"), out).findings)
    assert (finding.kind, finding.line, finding.thread) == ("race", 12, (1, 0, 0))
    assert not run_once(kernel(load, body.replace("SYNC", "bar.warp.sync -1;")), launch("out"), out).findings


def test_endless_loop_and_deadlock_stop(load):
    out = {"out": np.zeros(1, np.uint32)}
    endless = kernel(load, "mov.u32 %r1, 0;\nspin: add.u32 %r1, %r1, 1;\nbra spin;", block_budget=100_000)
    finding = only(run_once(endless, launch("out", grid=(4, 1, 1)), out).findings)
    assert finding.kind == "no_progress"
    assert finding.line in (11, 12)
    deadlock = kernel(load, "setp.lt.u32 %p1, %r0, 32; @!%p1 ret;\nbar.sync 1, 64;")
    finding = only(run_once(deadlock, launch("out", block=(64, 1, 1)), out).findings)
    assert (finding.kind, finding.line) == ("no_progress", 11)
    trap = kernel(load, "setp.eq.u32 %p1, %r0, 3;\n@%p1 trap;")
    finding = only(run_once(trap, launch("out"), out).findings)
    assert (finding.kind, finding.line) == ("no_progress", 11)
    assert "trap" in finding.message


def test_global_races_between_blocks_and_threads(load):
    body = """ld.param.u64 %rd0, [p0]; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; shr.u32 %r3, %r2, SHIFT;
        mad.wide.u32 %rd1, %r3, 4, %rd0;
        st.global.u32 [%rd1], %r2;"""
    out = {"out": np.zeros(64, np.uint32)}
    fine = kernel(load, body.replace("SHIFT", "0"))
    assert not run_once(fine, launch("out", grid=(2, 1, 1)), out).findings
    finding = only(
        run_once(kernel(load, body.replace("SHIFT", "1")), launch("out", grid=(2, 1, 1)), out).findings
    )
    assert (finding.kind, finding.line, finding.thread, finding.other_thread) == (
        "race",
        12,
        (1, 0, 0),
        (0, 0, 0),
    )
    assert "buffer out" in finding.message
    across = only(
        run_once(
            kernel(
                load,
                body.replace("mad.lo.u32 %r2, %r1, 32, %r0;", "add.u32 %r2, %r1, %r0;").replace(
                    "shr.u32 %r3, %r2, SHIFT;", "mov.u32 %r3, %r0;"
                ),
            ),
            launch("out", grid=(2, 1, 1)),
            out,
        ).findings
    )
    assert (across.kind, across.block, across.thread) == ("race", (1, 0, 0), (0, 0, 0))
    assert "of block (0,0,0)" in across.message


def test_global_read_of_what_another_thread_wrote(load):
    body = """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0;
        ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;
        SYNC
        xor.b32 %r2, %r0, 1; mad.wide.u32 %rd2, %r2, 4, %rd0;
        ld.global.u32 %r3, [%rd2];"""
    out = {"out": np.zeros(64, np.uint32)}
    finding = only(run_once(kernel(load, body.replace("SYNC", "// none")), launch("out"), out).findings)
    assert (finding.kind, finding.line, finding.thread, finding.other_thread) == (
        "race",
        14,
        (0, 0, 0),
        (1, 0, 0),
    )
    assert not run_once(kernel(load, body.replace("SYNC", "bar.sync 0;")), launch("out"), out).findings
    # Launches one after another don't race.
    later = kernel(
        load,
        "ld.param.u64 %rd0, [p0];\nmov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 st.global.u32 [%rd0], %r1; bar.sync 0; ld.global.u32 %r2, [%rd0];",
    )
    assert not later.run([launch("out")] * 3, out).findings


@pytest.mark.parametrize("fence", ["bar.sync 0;", "membar.gl; bar.sync 0;"])
def test_read_only_load_of_what_the_launch_wrote(load, fence):
    body = f"""ld.param.u64 %rd0, [p0]; ld.param.u64 %rd2, [p1]; mad.wide.u32 %rd1, %r0, 4, %rd0;
        mad.wide.u32 %rd3, %r0, 4, %rd2; ld.global.nc.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1;
        st.global.u32 [OUT], %r1; {fence}
        LOAD %r2, [%rd1];"""
    buffers = {"in": np.arange(WARP, dtype=np.uint32), "out": np.zeros(WARP, np.uint32)}

    def run(out: str, load_: str):
        text = body.replace("OUT", out).replace("LOAD", load_)
        return run_once(kernel(load, text, parameters="u64 u64"), launch("in", "out"), buffers).findings

    finding = only(run("%rd1", "ld.global.nc.u32"))
    assert (finding.kind, finding.line, finding.count) == ("race", 13, 32)
    assert finding.thread == finding.other_thread == (0, 0, 0)  # its own word even
    assert "byte 0 of buffer in as read-only data (.nc)" in finding.message
    assert only(run("%rd1", "ldu.global.u32")).kind == "race"
    assert not run("%rd1", "ld.global.u32")
    assert not run("%rd3", "ld.global.nc.u32")
    # What an earlier launch wrote may be read so.
    again = kernel(
        load, body.replace("OUT", "%rd3").replace("LOAD", "ld.global.nc.u32"), parameters="u64 u64"
    )
    assert not again.run([launch("in", "out"), launch("out", "in")], buffers).findings


def test_volatile_local_memory_leaves_the_search_between_blocks_on(load):
    executor = kernel(
        load,
        """.local .align 4 .b8 mine[4]; ld.param.u64 %rd0, [p0]; mov.u32 %r1, %ctaid.x;
        st.volatile.local.u32 [mine], %r1; ld.volatile.local.u32 %r2, [mine];
        setp.eq.u32 %p1, %r0, 0; @%p1 st.global.u32 [%rd0], %r2;""",
    )
    finding = only(
        run_once(executor, launch("out", grid=(2, 1, 1)), {"out": np.zeros(1, np.uint32)}).findings
    )
    assert (finding.kind, finding.line, finding.block) == ("race", 12, (1, 0, 0))


def test_atomics_and_volatile_accesses_do_not_race_with_their_kind(load):
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p0]; red.global.add.u32 [%rd0], %r0;
        setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [tile], %r0; bar.sync 0;
        atom.shared.add.u32 %r1, [tile], %r0; bar.sync 0;
        ld.shared.u32 %r2, [tile];""",
    )
    out = {"out": np.zeros(1, np.uint32)}
    assert not run_once(executor, launch("out", grid=(3, 1, 1), block=(64, 1, 1)), out).findings
    racy = kernel(
        load,
        """setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [tile], %r0; bar.sync 0;
        atom.shared.add.u32 %r1, [tile], %r0;
        ld.shared.u32 %r2, [tile];""",
    )
    read, update = run_once(racy, launch("out", block=(64, 1, 1)), out).findings
    assert (read.kind, read.line) == ("race", 12)
    assert (update.kind, update.line, update.thread) == ("race", 11, (32, 0, 0))


def test_halves_of_a_word_are_apart(load):
    executor = kernel(
        load,
        """mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 2, %r1; cvt.u16.u32 %h1, %r0;
        st.shared.u16 [%r2], %h1;
        ld.shared.u16 %h2, [%r2];""",
    )
    assert not run_once(executor, launch("out", block=(64, 1, 1)), {"out": np.zeros(1, np.uint32)}).findings


def test_inlined_toolkit_code_is_reported_where_it_is_called(load):
    text = entry(
        "u64",
        LANE
        + ".loc 1 20 5\nld.param.u64 %rd0, [p0];\n.loc 2 99 1, function_name $L__info_string0, inlined_at 1 20 5\n"
        ".loc 2 77 1, function_name $L__info_string1, inlined_at 2 99 1\nld.global.f32 %f1, [%rd0+400];",
    )
    finding = only(run_once(load(text + FILES), launch("A"), {"A": np.zeros(4, np.float32)}).findings)
    assert (finding.file, finding.line) == ("kernels/07_example.cu", 20)


def test_without_line_information(load):
    executor = load(entry("u64", "ld.param.u64 %rd0, [p0];\nld.global.f32 %f1, [%rd0+400];"))
    finding = only(run_once(executor, launch("A"), {"A": np.zeros(4, np.float32)}).findings)
    assert finding.file is None
    assert finding.line is None
    assert finding.message.endswith("which has 16")


@pytest.mark.parametrize("order", [0, 1, 7, 12345])
def test_shuffled_orders_are_deterministic_and_cover_every_block(load, order):
    executor = kernel(
        load,
        """ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; shr.u32 %r3, %r0, 5; mov.u32 %r4, %ctaid.x;
        and.b32 %r5, %r0, 31; setp.ne.u32 %p1, %r5, 0; @%p1 ret;
        atom.global.add.u32 %r1, [%rd0], 1; mad.lo.u32 %r6, %r4, 4, %r3; mad.wide.u32 %rd2, %r1, 4, %rd1;
        st.global.u32 [%rd2], %r6;""",
        parameters="u64 u64",
    )

    def sequence() -> list[int]:
        out = np.zeros(24, np.uint32)
        counter = np.zeros(1, np.uint32)
        launched = launch("counter", "out", grid=(6, 1, 1), block=(4 * WARP, 1, 1))
        assert not run_once(executor, launched, {"counter": counter, "out": out}, order=order).findings
        return out.tolist()

    first = sequence()
    assert sequence() == first
    assert sorted(first) == list(range(24))
    assert (first == list(range(24))) == (order == 0)
    blocks = [number // 4 for number in first[::4]]
    assert sorted(blocks) == list(range(6))
