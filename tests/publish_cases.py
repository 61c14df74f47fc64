"""Synthetic runs for the tests of publish, gate and what reads their tables. No figure in here was ever measured."""

from __future__ import annotations

import functools
import hashlib
import math
import random
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gemmlab import tables
from gemmlab.catalogue import Variant
from gemmlab.files import write_bytes, write_json
from gemmlab.schema import read_table, validate, write_table

HEADLINE = (4096, 4096, 4096)
SIZES = (512, 1024, 2048, 4096)
COUNT_SHAPES = ((128, 128, 128), (100, 92, 68))
GPU = "Synthetic GPU"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PEAK_TFLOPS = 60.0
COUNTERS = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "ptx_barriers",
)


def kernel(name: str, **fields: Any) -> Variant:
    """A kernel of the synthetic catalogue."""
    fields = {
        "idea": f"the idea of {name}",
        "source": f"kernels/{name}.cu",
        "baseline": "cublas_fp32",
    } | fields
    return Variant(name=name, origin="ladder.yaml", **fields)


def small_catalogue() -> dict[str, Variant]:
    """A kernel of every fate, two baselines and two broken kernels."""
    variants = [
        Variant("cublas_fp32", "baselines.yaml", "the library", kind="baseline", library="cublas"),
        kernel("naive", articles=("S1",)),
        kernel("tile16", articles=("S3",)),
        kernel("tile32", articles=("S4",)),
        kernel("register4x4", articles=("S10",), compared_with="tile16"),
        kernel("does_not_compile"),
        kernel("wrong_result"),
        kernel("tensor_cores", arithmetic="tf32", baseline="cublas_tf32"),
        kernel("broken_caught", kind="broken", stands_for="article A, claim A18", baseline=None),
        kernel("broken_unnoticed", kind="broken", stands_for="a public report", baseline=None),
    ]
    return {variant.name: variant for variant in variants}


def large_catalogue(kernels: int = 40) -> dict[str, Variant]:
    """A baseline and `kernels` kernels, with names as long as a catalogue's get."""
    ideas = (
        "naive",
        "tile",
        "register",
        "vectorised_loads",
        "double_buffer",
        "warp_tile",
        "swizzled_tile",
        "split_k",
    )
    names = [f"{ideas[i * len(ideas) // kernels]}_{i:02d}" for i in range(kernels)]
    variants = [Variant("cublas_fp32", "baselines.yaml", "the library", kind="baseline", library="cublas")]
    variants += [kernel(name, articles=("S1",) if name == names[0] else ()) for name in names]
    return {variant.name: variant for variant in variants}


def digest_of(text: str) -> str:
    """64 hexadecimal digits that depend on `text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_record(path: Path, record: Mapping[str, Any], schema: str) -> None:
    """Write a record as its stage would, after validation."""
    validate(record, schema, str(path))
    write_json(path, record)


def build_record(name: str, *, failed: bool = False, registers: int = 32) -> dict[str, Any]:
    """A record of compile."""
    if failed:
        reason = f'kernels/{name}.cu(12): error: expected a ";"'
        return {
            "variant": name,
            "status": "failed",
            "reason": reason,
            "entries": {},
            "digest": digest_of(name)[:16],
        }
    entry = {
        "registers": registers,
        "shared_static_bytes": 2048,
        "shared_dynamic_bytes": 0,
        "spill_store_bytes": 0 if registers < 200 else 48,
        "spill_load_bytes": 0 if registers < 200 else 64,
        "threads": 256,
        "occupancy": min(1.0, 8 * (65536 // (registers * 256)) / 64),
        "blocks_per_sm": 65536 // (registers * 256),
        "occupancy_limit": "threads" if registers <= 32 else "registers",
    }
    return {
        "variant": name,
        "status": "ok",
        "reason": None,
        "architecture": "sm_90",
        "nvcc": "13.0.88",
        "ptx_sha256": digest_of(f"{name}.ptx"),
        "cubin_sha256": digest_of(f"{name}.cubin"),
        "entries": {"prepare": {"registers": 16, "occupancy": 1.0}, "gemm": entry},
        "digest": digest_of(name)[:16],
    }


def check_record(name: str, executor: str, state: str = "ok", **fields: Any) -> dict[str, Any]:
    """A record of check."""
    counts: dict[str, Any] = {}
    if state in ("ok", "failed"):
        good = 300 if state == "ok" else 171
        spread = random.Random(f"{name}{executor}").uniform(0.02, 0.6)
        counts = {
            "shapes_run": 300,
            "exact_passed": good,
            "rounded_passed": good,
            "repeats": 10,
            "repeats_identical": 10,
            "worst_fraction_of_bound": spread if state == "ok" else 3.7,
            "findings": [],
            "failures": [],
        }
    if state == "failed":
        message = "element (16, 0) is 3, expected 4"
        counts["failures"] = [
            {"test": "exact", "problem": "17 x 16 x 16, alpha 1, beta 0", "message": message}
        ]
    return (
        {
            "variant": name,
            "executor": executor,
            "status": state,
            "reason": None if state == "ok" else f"exact: 129 of 300 shapes are wrong in {name}",
            "ptx_sha256": digest_of(f"{name}.ptx"),
            "cubin_sha256": digest_of(f"{name}.cubin"),
            "seed": 1,
            "shapes": 300,
            "digest": digest_of(f"{name} check")[:16],
        }
        | counts
        | fields
    )


def race(name: str) -> dict[str, Any]:
    """A finding of the emulator."""
    return {
        "kind": "race",
        "message": "thread (3, 0, 0) reads a word that thread (4, 1, 0) writes without a barrier between",
        "file": f"kernels/{name}.cu",
        "line": 27,
        "block": [0, 0, 0],
        "thread": [3, 0, 0],
        "other_thread": [4, 1, 0],
        "count": 12,
    }


def count_record(name: str, reuse: float) -> dict[str, Any]:
    """A record of count for a kernel that reads each element of A and B `1 / reuse` times as often as naive."""
    shapes = []
    for m, n, k in COUNT_SHAPES:
        warps = math.ceil(m * n * k / 32)
        shared = 0 if reuse <= 2 else 2 * warps / math.sqrt(reuse)
        sectors = (64 if reuse == 3 else 6) * warps / reuse
        values = (2 * warps / reuse, sectors, shared, 0, 99, 16)
        counters = {counter: math.ceil(value) for counter, value in zip(COUNTERS, values, strict=True)}
        shapes.append({"m": m, "n": n, "k": k, "counters": counters})
    return {
        "variant": name,
        "status": "ok",
        "reason": None,
        "ptx_sha256": digest_of(f"{name}.ptx"),
        "shapes": shapes,
        "digest": digest_of(f"{name} count")[:16],
    }


def timing(
    name: str, shape: tuple[int, int, int], cache: str, tflops: float, **fields: Any
) -> dict[str, Any]:
    """A row of bench whose baseline runs at 50 TFLOP/s."""
    m, n, k = shape
    time_ms = 2e-9 * m * n * k / tflops
    return {
        "variant": name,
        "arithmetic": "fp32",
        "m": m,
        "n": n,
        "k": k,
        "cache": cache,
        "blocks": 8,
        "samples": 64,
        "time_ms_median": time_ms,
        "time_ms_low": time_ms * 0.99,
        "time_ms_high": time_ms * 1.02,
        "tflops": tflops,
        "percent_of_peak": 100 * tflops / PEAK_TFLOPS,
        "baseline": "cublas_fp32",
        "baseline_version": "12.9",
        "baseline_kernel": "synthetic_gemm_128x64",
        "baseline_time_ms_median": 2e-9 * m * n * k / 50.0,
        "ratio": tflops / 50.0,
        "ratio_low": tflops / 50.0 * 0.985,
        "ratio_high": tflops / 50.0 * 1.01,
        "sm_clock_mhz": 1980,
        "gpu": GPU,
        "gpu_uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "driver": "580.0",
        "preset": "standard",
        "date": "2026-11-29T12:00:00+00:00",
        "cubin_sha256": digest_of(f"{name}.cubin"),
        "status": "ok",
        "digest": digest_of(f"{name} bench")[:16],
    } | fields


def timings(name: str, tflops: float, sizes: Iterable[int] = SIZES, **fields: Any) -> list[dict[str, Any]]:
    """Rows of bench for squares, slower where they are small."""
    return [
        timing(name, (size, size, size), cache, tflops * size / (size + 600) * gain, **fields)
        for size in sizes
        for cache, gain in (("cold", 1.0), ("hot", 1.05))
    ]


def unavailable_rows(
    variant: Variant, schema: str, reason: str = "this run has no GPU"
) -> list[dict[str, Any]]:
    """The row that stands for a bench or a profile where there is no GPU."""
    row = {"variant": variant.name, "status": "unavailable", "reason": reason}
    return [row | ({"arithmetic": variant.arithmetic} if schema == "timings" else {"metric": "any"})]


def metric(
    name: str, shape: tuple[int, int, int], metric_name: str, value: float | None, **fields: Any
) -> dict[str, Any]:
    """A row of profile."""
    m, n, k = shape
    return {
        "variant": name,
        "m": m,
        "n": n,
        "k": k,
        "launch": 1,
        "kernel": "gemm",
        "metric": metric_name,
        "value": value,
        "cubin_sha256": digest_of(f"{name}.cubin"),
        "status": "ok" if value is not None else "unavailable",
        "digest": digest_of(f"{name} profile")[:16],
    } | fields


def profile_rows(name: str, busy: float) -> list[dict[str, Any]]:
    """Rows of profile at the headline shape, and the counters of the count stage at its first shape."""
    rows = [
        metric(name, HEADLINE, "gpu__time_duration.sum", 3.0e6, unit="ns"),
        metric(name, HEADLINE, "sm__throughput.avg.pct_of_peak_sustained_elapsed", busy, unit="%"),
        metric(name, HEADLINE, "dram__throughput.avg.pct_of_peak_sustained_elapsed", 20.0, unit="%"),
        metric(name, HEADLINE, "dram__bytes_read.sum", None, reason="not known to this ncu"),
    ]
    counters = count_record(name, 16.0)["shapes"][0]["counters"]
    return rows + [metric(name, COUNT_SHAPES[0], counter, value) for counter, value in counters.items()]


def environment_record(gpu: bool) -> dict[str, Any]:
    """A record of environment."""
    card = {
        "name": GPU,
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "compute_capability": "9.0",
        "settings": {"power_limit_w": 700.0, "sm_clock_max_mhz": 1980, "ecc": "Enabled", "mig": "Disabled"},
        "attributes": {"multiprocessor_count": 132},
    }
    return {
        "id": digest_of(f"environment {gpu}")[:16],
        "device": "synthetic-gpu" if gpu else "emulator-sm_90",
        "date": "2026-11-29T11:58:00+00:00",
        "commit": COMMIT,
        "dirty": False,
        "operating_system": {
            "system": "Linux",
            "distribution": "Debian GNU/Linux 12",
            "kernel": "6.1.0",
            "libc": "glibc 2.36",
        },
        "cpu": {"model": "Synthetic CPU", "machine": "x86_64", "logical_cores": 4, "usable_cores": 2},
        "memory_bytes": 16 * 2**30,
        "python": "3.11.2",
        "packages": {"numpy": "2.4.6", "snakemake": "9.27.1"},
        "variables": {},
        "driver": {"version": "580.0", "cuda": "13.0", "verdict": None} if gpu else None,
        "tools": {
            "nvcc": {"release": "13.0", "build": "V13.0.88", "origin": "PATH"},
            "ncu": "2025.3.1" if gpu else None,
        },
        "gpus": [card] if gpu else [],
        "state": [],
        "missing": {} if gpu else {"tools.ncu": "ncu is not on PATH", "driver": "no NVIDIA driver answers"},
    }


def write_environment(results: Path, gpu: bool) -> None:
    """The environment's record of a run."""
    write_record(results / "environment" / "environment.json", environment_record(gpu), "environment")


def write_variant(results: Path, variant: Variant, index: int, *, gpu: bool) -> None:
    """All records of a variant that has nothing wrong with it; `index` decides how fast it is."""
    name = variant.name
    if variant.compiled:
        registers = 24 + 11 * (index % 22)
        write_record(results / "build" / f"{name}.json", build_record(name, registers=registers), "compile")
        for executor in ("emulator", "cuda") if gpu else ("emulator",):
            write_record(results / "check" / executor / f"{name}.json", check_record(name, executor), "check")
        write_record(results / "count" / f"{name}.json", count_record(name, float(1 + index)), "count")
    if variant.kind == "broken":
        return
    speed = 50.0 if variant.kind == "baseline" else 55.0 * (1 - math.exp(-(index + 0.4) / 8))
    fields: dict[str, Any] = {"arithmetic": variant.arithmetic}
    if variant.kind == "baseline":
        fields |= {
            "ratio": None,
            "ratio_low": None,
            "ratio_high": None,
            "baseline": None,
            "cubin_sha256": None,
        }
    bench = timings(name, speed, **fields) if gpu else unavailable_rows(variant, "timings")
    profile = profile_rows(name, min(99.0, 40.0 + 2 * index)) if gpu else unavailable_rows(variant, "profile")
    write_table(results / "bench" / f"{name}.csv", bench, "timings")
    write_table(results / "profile" / f"{name}.csv", profile, "profile")


def write_run(results: Path, catalogue: Mapping[str, Variant], *, gpu: bool) -> Path:
    """A run in which nothing went wrong."""
    for index, variant in enumerate(catalogue.values()):
        write_variant(results, variant, index, gpu=gpu)
    write_environment(results, gpu)
    return results


def write_small_run(results: Path, *, gpu: bool) -> dict[str, Variant]:
    """A run of `small_catalogue` in which every variant meets the fate that its name says, tables included.

    Gives that catalogue.
    """
    shutil.copytree(_small_run(gpu).name, results, dirs_exist_ok=True)
    return small_catalogue()


@functools.cache
def _small_run(gpu: bool) -> tempfile.TemporaryDirectory:
    """A small run that is made once and copied; its folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="gemmlab-publish-cases-")
    _make_small_run(Path(folder.name), gpu=gpu)
    write_tables(Path(folder.name), small_catalogue())
    return folder


def _make_small_run(results: Path, *, gpu: bool) -> None:
    catalogue = small_catalogue()
    write_run(results, catalogue, gpu=gpu)
    executors = ("emulator", "cuda") if gpu else ("emulator",)

    bad = "does_not_compile"
    write_record(results / "build" / f"{bad}.json", build_record(bad, failed=True), "compile")
    write_bytes(results / "build" / f"{bad}.cubin", b"")
    skipped = {"variant": bad, "status": "skipped", "reason": "compile failed"}
    for executor in executors:
        write_record(results / "check" / executor / f"{bad}.json", skipped | {"executor": executor}, "check")
    write_record(results / "count" / f"{bad}.json", skipped, "count")

    for executor in executors:
        record = check_record("wrong_result", executor, "failed")
        write_record(results / "check" / executor / "wrong_result.json", record, "check")
        caught = check_record("broken_caught", executor, "failed")
        if executor == "emulator":
            caught["findings"] = [race("broken_caught")]
        write_record(results / "check" / executor / "broken_caught.json", caught, "check")

    lacking = check_record(
        "tensor_cores",
        "emulator",
        "unavailable",
        reason="the emulator has no wgmma.mma_async (kernels/tensor_cores.cu:88)",
    )
    write_record(results / "check" / "emulator" / "tensor_cores.json", lacking, "check")
    counted = {
        "variant": "tensor_cores",
        "status": "unavailable",
        "reason": "the emulator has no wgmma.mma_async",
    }
    write_record(results / "count" / "tensor_cores.json", counted, "count")

    if gpu:
        for name in (bad, "wrong_result"):
            reason = "compile failed" if name == bad else "the check on cuda failed"
            row = {"variant": name, "arithmetic": "fp32", "status": "skipped", "reason": reason}
            write_table(results / "bench" / f"{name}.csv", [row], "timings")
            metric_row = {"variant": name, "metric": "any", "status": "skipped", "reason": reason}
            write_table(results / "profile" / f"{name}.csv", [metric_row], "profile")


def write_tables(results: Path, catalogue: Mapping[str, Variant]) -> dict[str, list[dict[str, Any]]]:
    """The tables of a run as publish writes them, without figures and report."""
    records = tables.read_records(results, catalogue)
    rows = tables.build_tables(records, HEADLINE, tables.read_environment(results))
    for name, table in rows.items():
        write_table(results / "tables" / f"{name}.csv", table, name)
    return rows


def read_tables(results: Path) -> dict[str, pd.DataFrame]:
    """The tables of a run as they are read back."""
    return {name: read_table(results / "tables" / f"{name}.csv", name) for name in tables.TABLES}
