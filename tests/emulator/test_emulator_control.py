"""Divergence, loops, exits, barriers, and exchanges between lanes."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_pieces import WARP, entry, launch, run_once

LANE = "\tmov.u32 %r0, %tid.x;\n"


def kernel(load, parameters: str, body: str, **options):
    return load(entry(parameters, LANE + body, **options))


def test_branches_diverge_and_meet_again(piece):
    a = np.arange(WARP, dtype=np.uint32)
    got = piece(
        """mov.u32 %out, 0; rem.u32 %r2, %a, 3; setp.eq.u32 %p1, %r2, 0; @%p1 bra zero;
        setp.eq.u32 %p2, %r2, 1; @!%p2 bra two; add.u32 %out, %out, 10; bra done;
        zero: add.u32 %out, %out, 100; bra done; two: add.u32 %out, %out, 1000;
        done: activemask.b32 %r3; popc.b32 %r4, %r3; add.u32 %out, %out, %r4;""",
        np.uint32,
        a=a,
    )
    np.testing.assert_array_equal(got, np.choose(a % 3, [100, 10, 1000]) + WARP)


def test_each_lane_has_its_own_trip_count(piece):
    a = np.arange(WARP, dtype=np.uint32)[::-1].copy()
    got = piece(
        """mov.u32 %out, 0; mov.u32 %r1, 0; setp.eq.u32 %p1, %a, 0; @%p1 bra end;
        loop: add.u32 %r1, %r1, 1; mad.lo.u32 %out, %r1, %r1, %out; setp.lt.u32 %p2, %r1, %a; @%p2 bra loop;
        end: add.u32 %out, %out, 1;""",
        np.uint32,
        a=a,
    )
    np.testing.assert_array_equal(got, [1 + sum(i * i for i in range(1, n + 1)) for n in a])


def test_nested_divergent_loops(piece):
    a = np.arange(WARP, dtype=np.uint32)
    got = piece(
        """mov.u32 %out, 0; mov.u32 %r1, 0;
        outer: setp.ge.u32 %p1, %r1, %a; @%p1 bra end; mov.u32 %r2, 0;
        inner: setp.gt.u32 %p2, %r2, %r1; @%p2 bra next; add.u32 %out, %out, 1; add.u32 %r2, %r2, 1; bra inner;
        next: add.u32 %r1, %r1, 1; bra outer; end:""",
        np.uint32,
        a=a,
    )
    np.testing.assert_array_equal(got, a * (a + 1) // 2)


def test_guarded_instructions_leave_other_lanes_alone(piece):
    a = np.arange(WARP, dtype=np.uint32)
    got = piece(
        "mov.u32 %out, 7; setp.lt.u32 %p1, %a, 5; @%p1 mov.u32 %out, 1; @!%p1 add.u32 %out, %out, %a;",
        np.uint32,
        a=a,
    )
    np.testing.assert_array_equal(got, np.where(a < 5, 1, 7 + a))


def test_threads_may_end_before_a_barrier(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; setp.ge.u32 %p1, %r0, 70; @%p1 ret;
        mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; bar.sync 0;
        sub.u32 %r3, 69, %r0; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.u32 %r4, [%r3];
        mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r4;""",
        module=".shared .align 4 .b8 tile[512];\n",
    )
    out = np.zeros(128, np.uint32)
    assert not run_once(executor, launch("out", block=(128, 1, 1)), {"out": out}).findings
    np.testing.assert_array_equal(out[:70], np.arange(70)[::-1])
    assert not out[70:].any()


def test_partly_filled_warps(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; activemask.b32 %r1; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r1;""",
    )
    out = np.zeros(40, np.uint32)
    run_once(executor, launch("out", block=(40, 1, 1)), {"out": out})
    assert (out[:32] == 0xFFFFFFFF).all()
    assert (out[32:] == 0xFF).all()


def test_barriers_order_shared_memory(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
        mov.u32 %r9, 128;
        loop: bar.sync 0; setp.ge.u32 %p1, %r0, %r9; @%p1 bra skip; mad.lo.u32 %r3, %r9, 4, %r2;
        ld.shared.u32 %r4, [%r3]; ld.shared.u32 %r5, [%r2]; add.u32 %r5, %r5, %r4; st.shared.u32 [%r2], %r5;
        skip: shr.u32 %r9, %r9, 1; setp.ne.u32 %p2, %r9, 0; @%p2 bra loop;
        setp.ne.u32 %p3, %r0, 0; @%p3 ret; ld.shared.u32 %r6, [tile]; st.global.u32 [%rd0], %r6;""",
        module=".shared .align 4 .b8 tile[1024];\n",
    )
    for order in range(4):
        out = np.zeros(1, np.uint32)
        assert not run_once(executor, launch("out", block=(256, 1, 1)), {"out": out}, order=order).findings
        assert out[0] == 255 * 128


def test_named_barriers_order_only_their_warps(load):
    # Two pairs of warps, each with a barrier of its own, pass values within the pair.
    body = """ld.param.u64 %rd0, [p0]; shr.u32 %r1, %r0, 6; add.u32 %r2, %r1, 1; mov.u32 %r3, tile;
        mad.lo.u32 %r4, %r0, 4, %r3; st.shared.u32 [%r4], %r0; barrier.sync %r2, 64;
        xor.b32 %r5, %r0, PARTNER; mad.lo.u32 %r5, %r5, 4, %r3; ld.shared.u32 %r6, [%r5];
        mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r6;"""
    module = ".shared .align 4 .b8 tile[512];\n"
    out = np.zeros(128, np.uint32)
    good = kernel(load, "u64", body.replace("PARTNER", "32"), module=module)
    for order in range(4):
        assert not run_once(good, launch("out", block=(128, 1, 1)), {"out": out}, order=order).findings
        np.testing.assert_array_equal(out, np.arange(128) ^ 32)
    bad = kernel(load, "u64", body.replace("PARTNER", "64"), module=module)
    kinds = {
        finding.kind
        for order in range(4)
        for finding in run_once(bad, launch("out", block=(128, 1, 1)), {"out": out}, order=order).findings
    }
    assert "race" in kinds


def test_producer_arrives_and_consumer_waits(load):
    # Warp 0 fills, arrives at barrier 1 and waits at 2 before it fills again; warp 1 the other way round.
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; and.b32 %r1, %r0, 31; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2;
        mov.u32 %r9, 0; mov.u32 %r8, 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra consumer;
        producer: mad.lo.u32 %r4, %r9, 100, %r1; st.shared.u32 [%r3], %r4; bar.arrive 1, 64; bar.sync 2, 64;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 3; @%p2 bra producer; ret;
        consumer: bar.sync 1, 64; xor.b32 %r5, %r1, 1; mad.lo.u32 %r5, %r5, 4, %r2; ld.shared.u32 %r6, [%r5];
        add.u32 %r8, %r8, %r6; bar.arrive 2, 64; add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 3; @%p2 bra consumer;
        mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1], %r8;""",
        module=".shared .align 4 .b8 tile[128];\n",
    )
    for order in range(4):
        out = np.zeros(WARP, np.uint32)
        execution = run_once(executor, launch("out", block=(64, 1, 1)), {"out": out}, order=order)
        assert not execution.findings
        np.testing.assert_array_equal(out, 300 + 3 * (np.arange(WARP) ^ 1))


@pytest.mark.parametrize(("operation", "wanted"), [("popc.u32", 40), ("and.pred", 0), ("or.pred", 1)])
def test_reducing_barriers(load, operation, wanted):
    target = "%r3" if operation == "popc.u32" else "%p3"
    give = "" if operation == "popc.u32" else "selp.u32 %r3, 1, 0, %p3;"
    executor = kernel(
        load,
        "u64",
        f"""ld.param.u64 %rd0, [p0]; setp.lt.u32 %p1, %r0, 40; bar.red.{operation} {target}, 0, %p1; {give}
        mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r3;""",
    )
    out = np.full(96, 9, np.uint32)
    run_once(executor, launch("out", block=(96, 1, 1)), {"out": out})
    assert (out == wanted).all()


@pytest.mark.parametrize("width", [32, 16, 8])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("amount", [0, 1, 3, 9, 31])
def test_shuffles(piece, width, mode, amount):
    a = np.arange(WARP, dtype=np.uint32) * 7
    segment = WARP - width << 8
    clamp = segment | (0 if mode == "up" else 31)
    got = piece(
        f"shfl.sync.{mode}.b32 %r5|%p1, %a, {amount}, {clamp}, -1; selp.u32 %r6, 1000, 0, %p1; add.u32 %out, %r5, %r6;",
        np.uint32,
        a=a,
    )
    wanted = []
    for lane in range(WARP):
        base = lane // width * width
        source = {
            "up": lane - amount,
            "down": lane + amount,
            "bfly": lane ^ amount,
            "idx": base + amount % width,
        }[mode]
        inside = source >= base if mode == "up" else source < base + width
        # A butterfly may reach back into an earlier segment, but never ahead.
        wanted.append(a[source if inside else lane] + 1000 * inside)
    np.testing.assert_array_equal(got, wanted)


def test_votes_matches_and_reductions(piece):
    a = np.arange(WARP, dtype=np.uint32)
    ballot = piece("setp.gt.u32 %p1, %a, 10; vote.sync.ballot.b32 %out, %p1, -1;", np.uint32, a=a)
    assert (ballot == 0xFFFFF800).all()
    for mode, wanted in (("all", 0), ("any", 1), ("uni", 0)):
        got = piece(
            f"setp.gt.u32 %p1, %a, 10; vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %out, 1, 0, %p2;",
            np.uint32,
            a=a,
        )
        assert (got == wanted).all()
    got = piece("and.b32 %r5, %a, 3; match.any.sync.b32 %out, %r5, -1;", np.uint32, a=a)
    np.testing.assert_array_equal(got, [0x11111111 << int(lane) % 4 for lane in a])
    got = piece("match.all.sync.b32 %r5|%p1, %a, -1; selp.u32 %out, 1, 0, %p1;", np.uint32, a=a)
    assert not got.any()
    for operation, wanted in (
        ("add.u32", 496),
        ("min.u32", 0),
        ("max.s32", 31),
        ("or.b32", 31),
        ("xor.b32", 0),
    ):
        assert (piece(f"redux.sync.{operation} %out, %a, -1;", np.uint32, a=a) == wanted).all()
    got = piece("elect.sync %r5|%p1, -1; selp.u32 %out, 1, 0, %p1;", np.uint32, a=a)
    np.testing.assert_array_equal(got, a == 0)


def test_vote_of_part_of_a_warp(piece):
    a = np.arange(WARP, dtype=np.uint32)
    got = piece(
        """setp.lt.u32 %p1, %a, 16; mov.u32 %out, 0; @!%p1 bra end; setp.lt.u32 %p2, %a, 4;
        vote.sync.ballot.b32 %out, %p2, 0xffff; shfl.sync.down.b32 %r5, %a, 8, 0x101f, 0xffff;
        add.u32 %out, %out, %r5; end:""",
        np.uint32,
        a=a,
    )
    np.testing.assert_array_equal(
        got, [15 + (lane + 8 if lane < 8 else lane) if lane < 16 else 0 for lane in range(WARP)]
    )


def test_tiles_of_half_a_warp_vote_and_reduce_by_themselves(piece):
    a = np.arange(WARP, dtype=np.uint32)
    tile = "and.b32 %r1, %a, 16; shl.b32 %r2, 0xffff, %r1;"
    halves = np.repeat([0, 16], 16).astype(np.uint32)
    got = piece(f"{tile} setp.gt.u32 %p1, %a, 12; vote.sync.ballot.b32 %out, %p1, %r2;", np.uint32, a=a)
    np.testing.assert_array_equal(got, np.where(a < 16, 0xE000, 0xFFFF0000))
    got = piece(
        f"{tile} setp.gt.u32 %p1, %a, 15; vote.sync.all.pred %p2, %p1, %r2; selp.u32 %out, 1, 0, %p2;",
        np.uint32,
        a=a,
    )
    np.testing.assert_array_equal(got, a >= 16)
    got = piece(f"{tile} redux.sync.min.u32 %out, %a, %r2;", np.uint32, a=a)
    np.testing.assert_array_equal(got, halves)
    got = piece(f"{tile} match.any.sync.b32 %out, 5, %r2;", np.uint32, a=a)
    np.testing.assert_array_equal(got, 0xFFFF << halves)
    steps = "".join(
        f"shfl.sync.down.b32 %r3, %out, {distance}, 0x101f, %r2; add.u32 %out, %out, %r3;"
        for distance in (8, 4, 2, 1)
    )
    got = piece(f"{tile} mov.u32 %out, %a; {steps}", np.uint32, a=a)
    assert (got[0], got[16]) == (sum(range(16)), sum(range(16, 32)))


@pytest.mark.parametrize("mask", ["-1", "%r2", "255"])
def test_reduction_in_a_partial_warp(load, mask):
    # The last warp has 8 threads; its masks name all lanes, those of a ballot, or those that exist.
    steps = "".join(
        f"shfl.sync.down.b32 %r3, %r1, {distance}, 31, {mask}; add.u32 %r1, %r1, %r3;"
        for distance in (4, 2, 1)
    )
    executor = kernel(
        load,
        "u64",
        f"""ld.param.u64 %rd0, [p0]; setp.lt.u32 %p9, %r0, 32; @%p9 ret; mov.u32 %r1, %r0;
        setp.lt.u32 %p1, %r0, 40; vote.sync.ballot.b32 %r2, %p1, -1; {steps} bar.warp.sync {mask};
        setp.eq.u32 %p2, %r0, 32; @%p2 st.global.u32 [%rd0], %r1;""",
    )
    out = np.zeros(1, np.uint32)
    assert not run_once(executor, launch("out", block=(40, 1, 1)), {"out": out}).findings
    assert out[0] == sum(range(32, 40))


def test_masks_may_name_lanes_that_have_ended(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; setp.ge.u32 %p1, %r0, 20; @%p1 ret;
        bar.warp.sync -1; vote.sync.ballot.b32 %r1, 1, -1; shfl.sync.idx.b32 %r2, %r0, 30, 31, -1;
        setp.gt.u32 %p2, %r0, 0; selp.b32 %r3, %r1, %r2, %p2; st.global.u32 [%rd1], %r3;""",
    )
    out = np.zeros(WARP, np.uint32)
    assert not run_once(executor, launch("out"), {"out": out}).findings
    assert out[0] == 0xFFFFFFFF  # a lane that has ended gives junk
    assert (out[1:20] == 0xFFFFF).all()


def test_lanes_that_met_need_not_wait_for_others(load):
    # Lanes 0 to 15 come to the meeting of their half first, then wait for lanes that take another way.
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; and.b32 %r1, %r0, 16; shl.b32 %r2, 0xffff, %r1;
        setp.lt.u32 %p1, %r0, 24; @%p1 bra first; bar.warp.sync 0xff00ffff;
        first: shfl.sync.bfly.b32 %r3, %r0, 1, 31, %r2; setp.ge.u32 %p2, %r0, 16; @%p2 bra end;
        bar.warp.sync 0xff00ffff; end: st.global.u32 [%rd1], %r3;""",
    )
    out = np.zeros(WARP, np.uint32)
    assert not run_once(executor, launch("out"), {"out": out}).findings
    np.testing.assert_array_equal(out, np.arange(WARP) ^ 1)


def test_syncwarp_on_two_branches_is_one_meeting(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
        setp.lt.u32 %p1, %r0, 16; @%p1 bra low; bar.warp.sync -1; bra both; low: bar.warp.sync -1;
        both: xor.b32 %r3, %r0, 31; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.u32 %r4, [%r3];
        mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r4;""",
        module=".shared .align 4 .b8 tile[128];\n",
    )
    out = np.zeros(WARP, np.uint32)
    assert not run_once(executor, launch("out"), {"out": out}).findings
    np.testing.assert_array_equal(out, np.arange(WARP) ^ 31)


def test_a_lock_taken_lane_by_lane_ends(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0];
        try: atom.global.acquire.gpu.cas.b32 %r1, [%rd0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra try;
        ld.volatile.global.u32 %r2, [%rd0+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%rd0+4], %r2;
        membar.gl; atom.global.release.gpu.exch.b32 %r3, [%rd0], 0;""",
    )
    out = np.zeros(2, np.uint32)
    execution = run_once(executor, launch("out", grid=(2, 1, 1), block=(64, 1, 1)), {"out": out})
    assert not execution.findings
    assert out.tolist() == [0, 128]


def test_a_warp_may_wait_for_another(load):
    # The first warp spins on a flag in shared memory that the last one sets.
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; setp.ne.u32 %p0, %r0, 0; mov.u32 %r8, 0; @!%p0 st.shared.u32 [flag], %r8;
        bar.sync 0;
        setp.lt.u32 %p1, %r0, 64; @%p1 bra wait; mov.u32 %r1, 42; setp.ne.u32 %p2, %r0, 95; @%p2 ret;
        st.shared.u32 [value], %r1; membar.cta; mov.u32 %r2, 1; st.volatile.shared.u32 [flag], %r2; ret;
        wait: ld.volatile.shared.u32 %r3, [flag]; setp.eq.u32 %p3, %r3, 0; @%p3 bra wait; membar.cta;
        ld.shared.u32 %r4, [value]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r4;""",
        module=".shared .align 4 .b8 flag[4];\n.shared .align 4 .b8 value[4];\n",
    )
    out = np.zeros(64, np.uint32)
    execution = run_once(executor, launch("out", block=(96, 1, 1)), {"out": out})
    assert not execution.findings
    assert (out == 42).all()


def test_the_clock_only_grows(load):
    executor = kernel(
        load,
        "u64",
        """ld.param.u64 %rd0, [p0]; mov.u32 %r1, %clock; mov.u32 %r5, 0;
        loop: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 50; @%p1 bra loop; mov.u64 %rd2, %clock64;
        cvt.u32.u64 %r2, %rd2; sub.u32 %r3, %r2, %r1; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r3;""",
    )
    out = np.zeros(WARP, np.uint32)
    run_once(executor, launch("out"), {"out": out})
    assert (out >= 100).all()
