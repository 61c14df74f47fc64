from __future__ import annotations

import claim_cases as runs
import publish_cases as cases
import pytest
from claim_cases import SMALL, SQUARE, count, entry, make_run, probe_record, profile, swept_row, timed_run

from gemmlab import evidence
from gemmlab.catalogue import LaunchTemplate, Variant
from gemmlab.errors import GemmlabError
from gemmlab.run_view import NEEDS_GPU, Figure, Missing, number

LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def values(figures):
    return [figure.value for figure in figures]


def counted_run(**counters):
    """Kernels by name with the counters that the emulator saw at SMALL."""
    return make_run(
        [
            entry(cases.kernel(name), gpu=False, count=count(name, {SMALL: own}))
            for name, own in counters.items()
        ]
    )


def profiled_run(**metrics):
    """Kernels by name with ncu's metrics at SQUARE."""
    return make_run(
        [entry(cases.kernel(name), profile=profile(name, {SQUARE: own})) for name, own in metrics.items()]
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.5, "2.5"),
        (0.25, "0.25"),
        (0, "0"),
        (16.0, "16"),
        (1192.4, "1,192"),
        (66.66, "66.7"),
        (0.00412, "0.00412"),
        ("x", "x"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value, text):
    assert number(value) == text


def test_speed_up_is_the_old_time_over_the_new_with_the_widest_interval():
    run = timed_run({"naive": {1024: 4.0}, "tile": {1024: 1.6}})
    (figure,) = evidence.speed_up(run, of="tile", over="naive", shapes=[1024])
    assert figure.value == 2.5
    assert (figure.low, figure.high) == pytest.approx((2.5 * 0.99 / 1.01, 2.5 * 1.01 / 0.99))
    assert str(figure) == "2.5 at 1024^3 (naive 4 ms, tile 1.6 ms)"


def test_speed_up_of_several_pairs_and_across_shapes():
    times = {"naive": {512: 2.0, 1024: 18.0}, "other": {512: 4.0, 1024: 20.0}, "tile": {512: 1.0, 1024: 2.0}}
    run = timed_run(times)
    several = evidence.speed_up(run, of="tile", over=["naive", "other"], shapes=[512])
    assert [str(figure).split(" (")[0] for figure in several] == [
        "2 for naive at 512^3",
        "4 for other at 512^3",
    ]
    zipped = evidence.speed_up(run, of=["naive", "tile"], over=["other", "naive"], shapes=[1024])
    assert values(zipped) == pytest.approx([20 / 18, 9.0])
    (growth,) = evidence.speed_up(run, of="tile", over="naive", shapes=[512, 1024], across="growth")
    assert growth.value == 4.5
    (spread,) = evidence.speed_up(run, of="tile", over="other", shapes=[512, 1024], across="spread")
    assert spread.value == 2.5
    with pytest.raises(GemmlabError, match="of has 2 names and over 3"):
        evidence.speed_up(run, of=["naive", "tile"], over=["naive", "tile", "other"], shapes=[512])


def test_what_is_missing_is_said():
    run = timed_run({"naive": {1024: 4.0}})
    with pytest.raises(Missing, match="tile is not in this run"):
        evidence.speed_up(run, of="tile", over="naive", shapes=[1024])
    with pytest.raises(Missing, match=r"naive was not timed at 512\^3 with a cold cache"):
        evidence.speed(run, quantity="percent_of_peak", of="naive", shapes=[512])
    without = make_run([entry(cases.kernel("naive"), gpu=False)])
    for measure, parameters in (
        (evidence.speed, {"quantity": "percent_of_peak", "of": "naive", "shapes": [1024]}),
        (evidence.counter, {"counters": [DRAM], "of": "naive", "shapes": [1024], "source": "ncu"}),
        (evidence.probe, {"of": ["probe_latency", "latency", 0]}),
    ):
        with pytest.raises(Missing) as missing:
            measure(without, **parameters)
        assert str(missing.value) == NEEDS_GPU


def test_a_time_that_is_not_ranked_or_failed_is_no_evidence():
    rows = [cases.timing("naive", runs.cube(1024), "cold", 9.0, flags="implausible")]
    rows += [cases.timing("naive", runs.cube(512), "cold", 9.0, status="failed", reason="wrong")]
    run = make_run([entry(cases.kernel("naive"), bench=rows)])
    with pytest.raises(Missing, match="not ranked"):
        run.timing("naive", runs.cube(1024))
    with pytest.raises(Missing, match="failed, wrong"):
        run.timing("naive", runs.cube(512))


def test_best_speed_passes_over_what_was_not_timed():
    run = timed_run(
        {"naive": {1024: 4.0}, "tile": {1024: 1.6}, "half": {1024: 0.1}},
        half=cases.kernel("half", arithmetic="fp16"),
    )
    (best,) = evidence.speed(
        run, quantity="percent_of_baseline", of=["naive", "tile", "absent"], shapes=[1024], best=True
    )
    assert best.value == pytest.approx(100 * 2e-9 * 1024**3 / 1.6 / 50)
    assert best.details.startswith("tile 1.6 ms")
    assert best.details.endswith("fastest of 2")
    # Without names every FP32 kernel takes part, and no other.
    (all_of_them,) = evidence.speed(run, quantity="percent_of_peak", shapes=[1024], best=True)
    assert all_of_them.details.startswith("tile")


def test_speed_ratio_compares_two_shapes_of_one_variant():
    rows = [
        cases.timing("v", (1024, 1024, 1023), "cold", 10.0),
        cases.timing("v", runs.cube(1024), "cold", 40.0),
    ]
    run = make_run([entry(cases.kernel("v"), bench=rows)])
    (figure,) = evidence.speed_ratio(run, of="v", shapes=[[1024, 1024, 1023]], over_shape=1024)
    assert figure.value == 0.25


def test_fastest_names_the_winner_and_winners_are_counted():
    run = timed_run({"small": {512: 1.0, 1024: 9.0}, "large": {512: 2.0, 1024: 8.0}})
    assert values(evidence.fastest(run, among=["small", "large"], shapes=[512, 1024])) == ["small", "large"]
    (winners,) = evidence.different_winners(run, among=["small", "large"], shapes=[512, 1024])
    assert winners.value == 2
    with pytest.raises(Missing, match="absent is not in this run"):
        evidence.fastest(run, among=["small", "absent"], shapes=[512])


def test_the_sweep_s_fastest_configuration_at_each_size():
    rows = [
        swept_row(512, "32x32", "2x2", 0.2),
        swept_row(512, "64x32", "4x4", 0.1),
        swept_row(512, "8x8", "1x1", None),
        swept_row(512, "128x128", "8x8", 0.3),
        swept_row(1024, "32x32", "2x2", 0.8),
        swept_row(1024, "64x32", "4x4", 0.6),
        swept_row(1024, "8x8", "1x1", 0.9),
        swept_row(1024, "128x128", "8x8", 0.5),
    ]
    entries = [entry(cases.kernel("block_tile"))]
    run = make_run(entries, tables={"tune": rows})
    tiles = evidence.swept(run, of="block_tile", field="tile", shapes=[512, 1024])
    assert [figure.value for figure in tiles] == ["64x32", "128x128"]
    assert tiles[0].details == "64x32x8 with 4x4 a thread, 0.1 ms, of 3 configurations"
    threads = evidence.swept(run, of="block_tile", field="thread_tile", shapes=[1024])
    assert [figure.value for figure in threads] == ["8x8"]
    (winners,) = evidence.different_swept(run, of="block_tile", field="tile", shapes=[512, 1024])
    assert (winners.value, winners.details) == (2, "64x32 at 512^3, 128x128 at 1024^3")
    with pytest.raises(Missing, match=r"no sweep of block_tile at 4096\^3: `snakemake tune` makes one"):
        evidence.swept(run, of="block_tile", field="tile", shapes=[4096])
    with pytest.raises(Missing, match=NEEDS_GPU):
        evidence.swept(
            make_run([entry(cases.kernel("block_tile"), gpu=False)]),
            of="block_tile",
            field="tile",
            shapes=[512],
        )
    changed = [row | {"digest": "another"} for row in rows]
    assert make_run(entries, tables={"tune": changed}).digest(["block_tile"]) != run.digest(["block_tile"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [
                swept_row(512, "8x8", "1x1", 0.2),
                swept_row(512, "16x16", "1x1", 0.1),
                swept_row(1024, "8x8", "1x1", 1.0),
            ],
            r"the sweep of v is incomplete or mixed \(1 configurations at 1024\^3, 2 in all\): delete tune.csv and run",
        ),
        (
            [swept_row(512, "8x8", "1x1", 0.2), swept_row(512, "8x8", "1x1", 0.1)],
            r"a configuration stands twice at 512\^3",
        ),
        (
            [swept_row(512, "8x8", "1x1", 0.2), swept_row(512, "16x16", "1x1", 0.1, gpu="NVIDIA T4")],
            r"its rows are of several GPUs \(NVIDIA T4, Synthetic GPU\)",
        ),
        (
            [swept_row(512, "8x8", "1x1", 0.2, gpu="NVIDIA T4")],
            "the sweep of v is of NVIDIA T4, the run's times are of Synthetic GPU: delete tune.csv and run",
        ),
    ],
)
def test_a_sweep_that_is_incomplete_or_of_another_gpu_decides_nothing(rows, message):
    rows = [row | {"variant": "v"} for row in rows]
    timings = [cases.timing("v", runs.cube(512), "cold", 9.0)]
    run = make_run([entry(cases.kernel("v"), bench=timings)], tables={"tune": rows})
    with pytest.raises(Missing, match=message):
        evidence.swept(run, of="v", field="tile", shapes=[512])


def test_baseline_kernels_are_told_apart_by_name():
    rows = [
        cases.timing("v", runs.cube(edge), "cold", 9.0, baseline_kernel=kernel)
        for edge, kernel in ((512, "gemm_64"), (1024, "gemm_128"), (2048, "gemm_128"))
    ]
    run = make_run([entry(cases.kernel("v"), bench=rows)])
    (figure,) = evidence.baseline_kernels(run, of=["v"], shapes=[512, 1024, 2048])
    assert figure.value == 2
    assert figure.details == "gemm_64 at 512^3, gemm_128 at 1024^3 and at 2048^3"


def test_counters_are_summed_scaled_and_divided():
    run = counted_run(naive={"a": 6, "b": 10, "loads": 4}, tile={"a": 1, "b": 3, "loads": 2})
    plain = {"counters": ["a", "b"], "shapes": [SMALL], "source": "emulator"}
    assert values(evidence.counter(run, of="naive", **plain)) == [16]
    assert values(evidence.counter(run, of=["naive", "tile"], per=["loads"], times=2, **plain)) == [8, 4]
    assert values(evidence.counter(run, of="naive", per="m * n", **plain)) == [16 / 128**2]
    assert values(evidence.counter(run, of="tile", over="naive", **plain)) == [0.25]
    assert values(
        evidence.counter(run, of="tile", over="naive", per=["loads"], relation="saved", **plain)
    ) == [2]
    zero = counted_run(naive={"a": 0, "b": 0, "loads": 0}, tile={"a": 1, "b": 0, "loads": 1})
    with pytest.raises(Missing, match="has none of a, b"):
        evidence.counter(zero, of="tile", over="naive", **plain)
    with pytest.raises(Missing, match="has none of"):
        evidence.counter(zero, of="naive", per=["loads"], **plain)
    with pytest.raises(Missing, match="no absent of naive"):
        evidence.counter(run, counters=["absent"], of="naive", shapes=[SMALL], source="emulator")


def test_formulas_know_the_variant_s_macros():
    variant = cases.kernel("tile", macros={"BM": 32, "NAME": "half"})
    run = make_run([entry(variant, count=count("tile", {SMALL: {"loads": 128**3 // 32}}))])
    parameters = {"counters": ["loads"], "of": "tile", "shapes": [SMALL], "source": "emulator"}
    assert values(evidence.counter(run, per="m * n * k // BM", **parameters)) == [1]


def test_metrics_come_from_ncu():
    run = profiled_run(naive={DRAM: 90.0, SM: 17.0}, tile={DRAM: 36.0, SM: 60.0})
    plain = {"shapes": [1024], "source": "ncu"}
    assert values(evidence.counter(run, counters=[DRAM], of="naive", **plain)) == [90]
    assert values(evidence.counter(run, counters=[DRAM], of="tile", over="naive", **plain)) == [0.4]
    assert values(evidence.counter(run, counters=[DRAM], per=[SM], of="tile", **plain)) == [0.6]


def block_of(*sides):
    launch = LaunchTemplate("gemm", sides, ("cdiv(n, 16)", "cdiv(m, 16)"), (1,), 0, {})
    return {"launches": (launch,), "macros": {}}


@pytest.mark.parametrize(
    ("block", "sectors", "rows", "columns"),
    [((16, 16), 2.0, 2, 16), ((32, 32), 2.5, 1, 32), ((8, 32), 2.5, 4, 8)],
)
def test_a_warp_s_span_follows_from_the_block_and_the_sectors_confirm_it(block, sectors, rows, columns):
    def run(per_request):
        counted = count("naive", {SMALL: {LOADS: 1000, SECTORS: int(1000 * per_request)}})
        return make_run([entry(cases.kernel("naive", **block_of(*block)), count=counted)])

    assert values(evidence.warp_span(run(sectors), of="naive", along="rows", shape=SMALL)) == [rows]
    assert values(evidence.warp_span(run(sectors), of="naive", along="columns", shape=SMALL)) == [columns]
    with pytest.raises(Missing, match="were counted"):
        evidence.warp_span(run(sectors + 0.5), of="naive", along="rows", shape=SMALL)


def test_barriers_are_those_of_a_block_or_of_its_steps():
    variant = cases.kernel("tile", tile=(16, 16, 16), **block_of(16, 16))
    run = make_run([entry(variant, count=count("tile", {SMALL: {"ptx_block_barriers": 64 * 8 * 2}}))])
    assert values(evidence.barriers(run, of="tile", shapes=[SMALL])) == [16]
    assert values(evidence.barriers(run, of=["tile"], shapes=[SMALL], steps=True)) == [2]


def test_wavefronts_are_looked_at_where_no_conflict_hides_them():
    names = (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "smsp__inst_executed_op_shared_ld.sum",
    )
    clean, wide, conflicting = (
        dict(zip(names, own, strict=True)) for own in ((0, 10, 10), (0, 40, 10), (5, 15, 10))
    )
    run = counted_run(clean=clean, wide=wide, conflicting=conflicting)
    plain = {"shapes": [SMALL], "source": "emulator"}
    figures = evidence.wavefronts_without_conflicts(run, among=["clean", "wide", "conflicting"], **plain)
    assert {figure.label.split()[1]: figure.value for figure in figures} == {"clean": 1, "wide": 4}
    with pytest.raises(Missing, match="has bank conflicts"):
        evidence.wavefronts_without_conflicts(run, among=["conflicting"], **plain)


def test_outputs_are_compared_bit_by_bit():
    variants = [
        entry(cases.kernel(name), count=count(name, {SMALL: {"a": 1}}, output=digit * 64))
        for name, digit in (("a", "1"), ("b", "1"), ("c", "2"))
    ]
    run = make_run([*variants, entry(cases.kernel("d"))])
    assert values(evidence.same_output(run, of="a", over="b", shapes=[SMALL])) == ["same"]
    assert values(evidence.same_output(run, of="a", over="c", shapes=[SMALL])) == ["different"]
    with pytest.raises(Missing, match="no output of d"):
        evidence.same_output(run, of="a", over="d", shapes=[SMALL])


def test_the_limiter_is_named_by_its_kind():
    run = profiled_run(naive={SM: 50.0, DRAM: 91.0})
    (figure,) = evidence.find_limiter(run, of="naive", shapes=[1024])
    assert (figure.value, figure.details) == ("DRAM", "DRAM (91 %)")
    with pytest.raises(Missing, match="no throughput"):
        evidence.find_limiter(profiled_run(naive={SM: 50.0}), of="naive", shapes=[1024])


def built(name, **resources):
    record = cases.build_record(name)
    record["entries"]["gemm"] |= resources
    return entry(cases.kernel(name), gpu=False, build=record)


def test_resources_are_those_of_the_widest_entry():
    run = make_run(
        [
            built("small", registers=31, shared_static_bytes=2048, shared_dynamic_bytes=0),
            built(
                "large",
                registers=64,
                shared_static_bytes=4096,
                shared_dynamic_bytes=4096,
                sass={"FFMA": 8, "LDS": 4},
            ),
        ]
    )
    assert values(evidence.resource(run, field="registers", of=["small", "large"])) == [31, 64]
    assert values(evidence.resource(run, field="shared_bytes", of="large", over="small")) == [4]
    assert values(
        evidence.resource(run, field="registers", of="small", over="large", relation="difference")
    ) == [-33]
    assert values(evidence.resource(run, field="instructions", of="large")) == [12]
    with pytest.raises(Missing, match="instructions of small"):
        evidence.resource(run, field="instructions", of="small")
    failed = make_run([entry(cases.kernel("bad"), build=cases.build_record("bad", failed=True))])
    with pytest.raises(Missing, match="no build of bad: failed"):
        evidence.resource(failed, field="registers", of="bad")


@pytest.mark.parametrize(
    ("field", "expected"),
    [("fraction", [2 / 3, 1.0]), ("blocks", [1, 2]), ("slots", [2 / 3, 0.5]), ("lanes", [1, 1])],
)
def test_occupancy_is_worked_out_for_any_architecture(field, expected):
    run = make_run([built("tile32", registers=32, threads=1024, shared_static_bytes=8192)])
    figures = evidence.theoretical_occupancy(run, field=field, of="tile32", architectures=["sm_86", "sm_90"])
    assert values(figures) == pytest.approx(expected)


def test_occupancy_takes_the_registers_of_a_native_build_where_there_is_one():
    native = {"variant": "tile", "architecture": "sm_86", "registers": 128, "spill_bytes": 4, "status": "ok"}
    run = make_run([built("tile", registers=32, threads=256)], tables={"static": [native]})
    present, own = evidence.theoretical_occupancy(
        run, field="blocks", of="tile", architectures=["sm_80", "sm_86"]
    )
    assert "compiled" not in present.details
    assert own.value < present.value
    assert own.details.endswith("; compiled for it, 128 registers")
    assert own.label == "for tile, spilling 4 bytes, on sm_86"


def test_an_odd_block_wastes_lanes():
    run = make_run([built("tile17", registers=32, threads=289)])
    (figure,) = evidence.theoretical_occupancy(run, field="lanes", of="tile17", architectures=["sm_90"])
    assert figure.value == pytest.approx(289 / 320)


def test_tables_of_the_architecture_and_shares_of_the_catalogue():
    run = make_run(
        [
            built("a", shared_static_bytes=2048),
            built("b", shared_static_bytes=20000),
            built("c", shared_static_bytes=0),
        ]
    )
    assert values(evidence.multiprocessor(run, field="shared_kib", architecture="sm_80")) == [164]
    (share,) = evidence.share_within(run, field="shared_bytes", least=16384, most=49152)
    assert share.value == 0.5


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ({"emulator": "failed"}, "caught"),
        ({"emulator": "failed", "cuda": "failed"}, "caught"),
        ({"emulator": "ok"}, "unnoticed"),
        ({"emulator": "failed", "cuda": "ok"}, "caught"),
        ({"emulator": "unavailable"}, None),
    ],
)
def test_a_broken_kernel_is_caught_where_no_executor_passes_it(states, verdict):
    variant = Variant(
        "broken", "broken.yaml", "a mistake", kind="broken", source="kernels/x.cu", stands_for="a report"
    )
    checks = {executor: cases.check_record("broken", executor, state) for executor, state in states.items()}
    run = make_run([entry(variant, checks=checks)])
    if verdict is None:
        with pytest.raises(Missing, match="was not checked"):
            evidence.caught(run, of=["broken"])
    else:
        # A race may pass by luck on a GPU without a sanitizer: that row decides nothing.
        assert values(evidence.caught(run, of=["broken"])) == [verdict]


def test_probes_give_elements_sums_and_quotients():
    probes = {
        "probe_latency": probe_record("probe_latency", latency=[600.0, 200.0, 40.0, 30.0]),
        "probe_bandwidth": probe_record(
            "probe_bandwidth", global_rate=[10.0, 10.0], shared_rate=[120.0, 130.0]
        ),
        "probe_torn": probe_record("probe_torn", rate=[1.0, None]),
        "probe_failed": probe_record("probe_failed") | {"status": "failed", "reason": "device fault"},
    }
    run = make_run([entry(cases.kernel("naive"))], probes)
    assert values(evidence.probe(run, of=["probe_latency", "latency", 1])) == [200]
    of, over = ["probe_bandwidth", "shared_rate"], ["probe_bandwidth", "global_rate"]
    assert values(evidence.probe(run, of=of, over=over, times=2)) == [25]
    for place, reason in (
        (["probe_latency", "latency", 9], r"has no latency\[9\]"),
        (["probe_torn", "rate"], "left rate unwritten"),
        (["probe_failed", "rate"], "failed, device fault"),
        (["probe_absent", "rate"], "was not run"),
    ):
        with pytest.raises(Missing, match=reason):
            evidence.probe(run, of=place)


def test_refusals_are_the_driver_s_own_words():
    answers = {
        "cubin_without_architecture": {"error": "CUDA_ERROR_NO_BINARY_FOR_GPU", "message": "no kernel image"},
        "cubin_for_another_architecture": {"error": None, "message": "not compiled: nvcc fatal"},
    }
    probes = {"refusals": {"probe": "refusals", "status": "ok", "reason": None, "answers": answers}}
    run = make_run([entry(cases.kernel("naive"))], probes)
    (figure,) = evidence.refusal(run, case="cubin_without_architecture")
    assert (figure.value, figure.details) == ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image")
    for case, reason in (("cubin_for_another_architecture", "not compiled"), ("absent", "was not tried")):
        with pytest.raises(Missing, match=reason):
            evidence.refusal(run, case=case)


def test_what_no_run_decides_says_why():
    run = make_run([entry(cases.kernel("naive"))])
    with pytest.raises(Missing, match=r"gemmlab doctor calls it wrong \(loaded is libcublas.so.12"):
        evidence.doctor_test(run)
    with pytest.raises(Missing, match="a second GPU"):
        evidence.undecidable(run, reason="a second GPU")


def test_one_shape_that_lacks_something_does_not_take_the_others_along():
    run = timed_run({"naive": {1024: 4.0, 2048: 9.0}, "tile": {1024: 2.0}})
    parts = evidence.measure(
        run, {"measure": "speed_up", "of": "tile", "over": "naive", "shapes": [1024, 2048]}
    )
    assert values(parts[0].figures) == [2]
    assert parts[1].figures == ()
    assert parts[1].missing.startswith("tile was not timed at 2048^3")
    together = {"measure": "different_winners", "among": ["tile", "naive"], "shapes": [1024, 2048]}
    assert [len(part.figures) for part in evidence.measure(run, together)] == [0]


@pytest.mark.parametrize(
    ("measurement", "message"),
    [
        ({"measure": "guess"}, "measure is guess, expected one of speed_up"),
        ({"measure": "speed_up", "of": "a", "shapes": [1]}, "missing a required .*argument: 'over'"),
        ({"measure": "caught", "of": ["a"], "shapes": [1]}, "unexpected keyword argument 'shapes'"),
    ],
)
def test_only_known_measures_with_their_own_parameters(measurement, message):
    with pytest.raises(GemmlabError, match=message):
        evidence.bind(measurement)


def test_a_figure_reads_as_a_clause():
    assert str(Figure("at 1024^3", 2.5, "naive 4 ms")) == "2.5 at 1024^3 (naive 4 ms)"
    assert str(Figure("", "caught")) == "caught"
