from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from pathlib import Path

import pytest
from fake_gpu import Gpu, Kernel, gemm, make_cubin, renew_nvbench, view

from gemmlab import status
from gemmlab.catalogue import Variant
from gemmlab.config import load_config
from gemmlab.schema import validate
from gemmlab.timing.session import SAMPLE_COLUMNS, Result, measure_variant
from gemmlab.timing.settings import Settings
from gemmlab.timing.telemetry import Reading, Telemetry

SMALL = (64, 48, 80)


def settings(**changes) -> Settings:
    config = load_config()
    given = {key: config[key] for key in ("preset", "seed", "bench")} | {"headline_shape": SMALL}
    return dataclasses.replace(Settings.parse(json.dumps(given)), **changes)


@pytest.fixture
def cubin(tmp_path: Path) -> Path:
    path = tmp_path / "naive.cubin"
    path.write_bytes(make_cubin(90, ["gemm"]))
    return path


def measure(
    catalogue: dict[str, Variant], cubin: Path, shapes=(SMALL,), variant: Variant | None = None, **changes
) -> Result:
    variant = variant or catalogue["naive"]
    result = measure_variant(variant, catalogue["cublas_fp32"], shapes, settings(**changes), cubin)
    for row in result.rows:
        validate(row, "timings", "row")
    return result


def test_a_variant_twice_as_fast_has_the_ratio_two_cold_and_hot(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm, lambda: 0.1)
    rows = {row["cache"]: row for row in measure(catalogue, cubin).rows}
    assert set(rows) == {"cold", "hot"}
    for row in rows.values():
        assert (row["status"], row["blocks"]) == (status.OK, 8)
        assert row["ratio"] == pytest.approx(2.0, rel=1e-5)
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert row["time_ms_median"] == pytest.approx(0.1, rel=1e-5)
        assert row["baseline_time_ms_median"] == pytest.approx(0.2, rel=1e-5)
        assert row["tflops"] == pytest.approx(2 * 64 * 48 * 80 / 0.1e-3 / 1e12, rel=1e-5)
        assert (row["baseline"], row["baseline_version"]) == ("cublas_fp32", "cuBLAS 13.1.0")
        assert row["baseline_kernel"] == "sgemm_fake"
        assert (row["gpu_uuid"], row["flags"]) == ("GPU-fake", None)
    assert rows["cold"]["samples"] == 8 * 8
    assert rows["hot"]["samples"] == 8 * 4


def test_every_sample_is_kept_with_the_time_of_its_measurement(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm)
    result = measure(catalogue, cubin, shapes=(SMALL, (32, 32, 32)))
    samples = [dict(zip(SAMPLE_COLUMNS, row, strict=True)) for row in result.samples]
    for sample in samples:
        validate(sample, "samples", "sample")
    for row in result.rows:
        own = [s for s in samples if (s["m"], s["cache"], s["role"]) == (row["m"], row["cache"], "variant")]
        assert len(own) == row["samples"]
    spans = sorted({(s["start_s"], s["end_s"]) for s in samples})
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_wrong_result_is_not_timed(gpu: Gpu, catalogue: dict[str, Variant], cubin: Path) -> None:
    def wrong(*arguments) -> None:
        gemm(*arguments)
        view(arguments[9], 1)[:] = 0

    gpu.kernels["gemm"] = Kernel(wrong)
    (row,) = measure(catalogue, cubin, shapes=((16, 16, 16),)).rows
    assert row["status"] == status.FAILED
    assert "wrong result of naive, so not timed" in row["reason"]
    assert "time_ms_median" not in row


def test_a_wrong_baseline_is_named(gpu: Gpu, catalogue: dict[str, Variant], cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(gemm)
    gpu.cublas.wrong = True
    (row,) = measure(catalogue, cubin).rows
    assert row["status"] == status.FAILED
    assert "wrong result of cublas_fp32" in row["reason"]


def test_what_is_faster_than_the_peak_is_flagged_and_has_no_ratio(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm, lambda: 1e-9)
    for row in measure(catalogue, cubin).rows:
        assert (row["status"], row["ratio"]) == (status.OK, None)
        assert "implausible" in row["flags"].split()


def test_a_launch_over_50_ms_gets_one_sample_a_block_and_no_hot_timing(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm, lambda: 60.0)
    rows = {row["cache"]: row for row in measure(catalogue, cubin).rows}
    assert rows["cold"]["samples"] == rows["cold"]["blocks"] == 8
    assert rows["hot"]["status"] == status.SKIPPED
    assert "a launch takes 60 ms, over 50 ms" in rows["hot"]["reason"]


def test_a_launch_over_500_ms_is_skipped_in_standard_and_timed_a_little_in_full(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm, lambda: 600.0)
    (row,) = measure(catalogue, cubin, preset="standard").rows
    assert row["status"] == status.SKIPPED
    assert "a launch of naive takes 600 ms, over 500 ms" in row["reason"]
    assert gpu.launches == 2
    row = measure(catalogue, cubin, preset="full").rows[0]
    assert (row["status"], row["blocks"], row["samples"], row["ratio_low"]) == (status.OK, 3, 3, None)
    assert "few_samples" in row["flags"].split()


def test_launches_too_short_for_python_fill_a_millisecond_hot(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    def milliseconds() -> float:
        # Launched by itself it seems to take as long as Python needs for the launch.
        return 0.004 if gpu.replaying else 0.04

    gpu.kernels["gemm"] = Kernel(gemm, milliseconds)
    gpu.cublas.milliseconds = 0.005
    result = measure(catalogue, cubin, caches=("hot",))
    launches = {dict(zip(SAMPLE_COLUMNS, row, strict=True))["launches"] for row in result.samples}
    assert launches == {250}


def test_a_slow_first_launch_which_loads_the_code_costs_no_timing_and_no_samples(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    times = itertools.chain([900.0], itertools.repeat(0.1))
    gpu.kernels["gemm"] = Kernel(gemm, lambda: next(times))
    rows = {row["cache"]: row for row in measure(catalogue, cubin, preset="standard").rows}
    assert {cache: row["status"] for cache, row in rows.items()} == {"cold": status.OK, "hot": status.OK}
    assert rows["cold"]["samples"] == 8 * 8


def test_standard_times_only_some_squares_and_the_headline_hot(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm)
    shapes = ((16, 16, 16), (32, 32, 32), SMALL)
    rows = measure(catalogue, cubin, shapes=shapes, hot_sizes=(32,)).rows
    assert [row["m"] for row in rows if row["cache"] == "cold"] == [16, 32, 64]
    assert [row["m"] for row in rows if row["cache"] == "hot"] == [32, 64]


def test_a_low_clock_is_told_by_nvbench_cold_and_by_nvml_at_work_hot(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flags(reading: Reading, nvbench_mhz: float) -> dict[str, str | None]:
        renew_nvbench(gpu, monkeypatch)
        monkeypatch.setattr(Telemetry, "read", lambda self: reading)
        gpu.clock_mhz = nvbench_mhz
        return {row["cache"]: row["flags"] for row in measure(catalogue, cubin).rows}

    monkeypatch.setattr(Telemetry, "max_sm_clock_mhz", lambda self: 1980)
    gpu.kernels["gemm"] = Kernel(gemm)
    assert flags(Reading(1980, throttle_reasons=0), 1500.0) == {"cold": "low_clock", "hot": None}
    assert flags(Reading(345, throttle_reasons=0x1), 1980.0) == {"cold": None, "hot": None}
    assert flags(Reading(1515, throttle_reasons=0x4), 1980.0) == {
        "cold": "throttled",
        "hot": "throttled low_clock",
    }


def test_an_unsupported_shape_is_skipped_and_the_others_go_on(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm)
    variant = dataclasses.replace(catalogue["naive"], constraints=("k % 4 == 0",))
    rows = measure(catalogue, cubin, shapes=((16, 16, 15), SMALL), variant=variant).rows
    assert [row["status"] for row in rows] == [status.SKIPPED, status.OK, status.OK]
    assert "needs k % 4 == 0" in rows[0]["reason"]


def test_a_shape_that_does_not_fit_is_skipped(gpu: Gpu, catalogue: dict[str, Variant], cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(gemm)
    gpu.free_bytes = 2**26 + 10_000
    (row,) = measure(catalogue, cubin, shapes=((8192, 8192, 1),)).rows
    assert row["status"] == status.SKIPPED
    assert "doesn't fit" in row["reason"]


def test_a_fault_becomes_failed_rows_that_name_it(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(
        gemm, fault="cudaErrorIllegalAddress: an illegal memory access was encountered"
    )
    (row,) = measure(catalogue, cubin).rows
    assert row["status"] == status.FAILED
    assert row["reason"].startswith("device fault: naive: an illegal memory access was encountered")


def test_a_kernel_that_cannot_be_launched_says_why(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    gpu.kernels["gemm"] = Kernel(gemm, num_regs=512)
    (row,) = measure(catalogue, cubin).rows
    assert row["status"] == status.FAILED
    assert "not launchable: gemm: 512 registers x 256 threads" in row["reason"]


@pytest.mark.parametrize("missing", ["cupy", "cuda.bench"])
def test_what_the_machine_lacks_makes_it_unavailable(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "cuda.bench":
        monkeypatch.delattr(sys.modules["cuda"], "bench")
    monkeypatch.setitem(sys.modules, missing, None)
    (row,) = measure(catalogue, cubin).rows
    assert row["status"] == status.UNAVAILABLE
    assert "requirements-gpu-cu12.lock" in row["reason"]


def test_a_baseline_is_timed_alone(gpu: Gpu, catalogue: dict[str, Variant]) -> None:
    result = measure_variant(catalogue["cublas_fp32"], None, [SMALL], settings(), None)
    for row in result.rows:
        assert (row["status"], row["baseline"], row["ratio"]) == (status.OK, None, None)
        assert row["time_ms_median"] == pytest.approx(0.2, rel=1e-5)
        assert row["baseline_kernel"] == "sgemm_fake"


def test_no_warmup_and_few_blocks_are_flagged(gpu: Gpu, catalogue: dict[str, Variant], cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(gemm)
    rows = measure(catalogue, cubin, warmup=0, blocks=2, repeats=1).rows
    for row in rows:
        assert row["flags"].split() == ["few_samples", "no_warmup"]
        assert row["time_ms_low"] is None


def test_one_outlier_is_flagged_kept_and_moves_no_median(
    gpu: Gpu, catalogue: dict[str, Variant], cubin: Path
) -> None:
    calls = iter(range(10**6))
    gpu.kernels["gemm"] = Kernel(gemm, lambda: 5.0 if next(calls) == 66 else 0.1)
    (row,) = measure(catalogue, cubin, caches=("cold",)).rows
    assert row["time_ms_median"] == pytest.approx(0.1, rel=1e-5)
    assert (row["samples"], row["flags"]) == (64, "noisy")


def test_cublaslt_s_best_is_timed_against_cublas(gpu: Gpu, catalogue: dict[str, Variant]) -> None:
    variant = catalogue["cublaslt_fp32"]
    result = measure_variant(variant, catalogue[variant.baseline], [SMALL], settings(), None)
    for row in result.rows:
        assert (row["status"], row["baseline"]) == (status.OK, "cublas_fp32")
        assert row["ratio"] == pytest.approx(1.0, rel=1e-5)
