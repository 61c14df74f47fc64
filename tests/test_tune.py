from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import yaml
from fake_gpu import Kernel, gpu, make_cubin, view  # noqa: F401 - gpu is a fixture

from gemmlab import cli, figures, tune_session
from gemmlab import tune as tune_module
from gemmlab.catalogue import load_catalogue
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root
from gemmlab.publish_run import tree_digests
from gemmlab.schema import read_table, write_table
from gemmlab.tables import read_rows
from gemmlab.toolchain import find_nvcc
from gemmlab.tune import (
    PROPOSED_NAME,
    Candidate,
    Space,
    Sweep,
    Timing,
    best_row,
    build_candidates,
    load_space,
    proposed_entry,
    size_rows,
    tune,
    variant_of,
    write_results,
)
from gemmlab.tune_figure import sweep_drawing
from gemmlab.tune_session import KernelTunerSession, launches_in_sample

ENTRY = {
    "threads": 64,
    "registers": 40,
    "spill_store_bytes": 0,
    "spill_load_bytes": 0,
    "shared_static_bytes": 1024,
    "shared_dynamic_bytes": 0,
    "blocks_per_sm": 16,
    "occupancy": 0.5,
    "occupancy_limit": "blocks",
}
SMALL = Space(
    "block_tile",
    {"BM": (16, 32), "BN": (16, 32), "BK": (8,), "TM": (2,), "TN": (2,)},
    ("BM == BN", "(BM // TM) * (BN // TN) % 32 == 0"),
    (64, 96),
    3,
)


@pytest.fixture(scope="module")
def base():
    return load_catalogue()["block_tile"]


def candidates_of(base, tmp_path, space=SMALL, **changes):
    """Candidates that were never compiled: what a build says is ENTRY with `changes`."""
    found = []
    for configuration in space.configurations():
        variant = variant_of(base, configuration)
        cubin = tmp_path / f"{variant.name}.cubin"
        cubin.write_bytes(make_cubin(90, ["gemm"]))
        build = {
            "status": "ok",
            "reason": None,
            "entries": {"gemm": ENTRY | changes},
            "cubin_sha256": "0" * 64,
        }
        found.append(Candidate(configuration, variant, build, cubin))
    return found


class FakeTuner:
    identity = {"gpu": "NVIDIA Fake", "driver": "1.0", "date": "2026-01-01T00:00:00+00:00"}  # noqa: RUF012

    def sweep(self, candidates, size):
        # The larger the tile, the faster, but for the small size.
        times = [
            size * (1 / one.configuration["BM"] if size > 64 else one.configuration["BM"])
            for one in candidates
        ]
        return Sweep([Timing((time, 2 * time, time / 2), 5) for time in times], 1.0)


def test_the_sweep_of_the_repository_is_legal_and_of_a_fitting_size(base):
    space = load_space(repository_root() / "config" / "tune.yaml")
    configurations = space.configurations()
    assert 40 <= len(configurations) <= 80
    assert space.variant == base.name
    for one in configurations:
        threads = (one["BM"] // one["TM"]) * (one["BN"] // one["TN"])
        assert threads % 32 == 0
        assert threads <= 1024
        assert 4 * (one["BK"] + 1) * (one["BM"] + one["BN"]) <= 48 * 1024
    # The catalogue's own tiles are among them, so that the sweep answers for them too.
    macros = [variant.macros for name, variant in load_catalogue().items() if name.startswith("block_tile")]
    assert [one for one in macros if dict(one) not in configurations] == []


def test_restrictions_leave_what_fulfils_all_of_them():
    assert [(one["BM"], one["BN"]) for one in SMALL.configurations()] == [(16, 16), (32, 32)]
    with pytest.raises(GemmlabError, match="no combination"):
        replace(SMALL, restrictions=("BM > 99",)).configurations()
    with pytest.raises(GemmlabError, match="NOPE"):
        replace(SMALL, restrictions=("NOPE > 1",)).configurations()


def test_settings_are_validated(tmp_path):
    path = tmp_path / "tune.yaml"
    path.write_text("variant: block_tile\nparameters: {BM: [16], BN: [16], BK: [8], TM: [1], TX: [1]}\n")
    with pytest.raises(GemmlabError, match="TX"):
        load_space(path)


def test_a_row_holds_times_speed_and_resources(base, tmp_path):
    first, second = candidates_of(base, tmp_path, spill_load_bytes=8)
    sweep = Sweep([Timing((0.3, 0.1, 0.2), 4), Timing(fault="wrong result, so not timed: row 3")], 0.1)
    row, other = size_rows(base, [first, second], 1000, sweep)
    assert (row["time_ms"], row["time_ms_least"], row["time_ms_most"]) == (0.2, 0.1, 0.3)
    assert row["tflops"] == pytest.approx(10.0)
    assert row["percent_of_baseline"] == pytest.approx(50.0)
    assert (row["shared_bytes"], row["spill_bytes"], row["reason"]) == (1024, 8, "spills 8 bytes")
    assert (row["best"], other["best"]) == (True, False)
    assert (other["status"], other["reason"]) == ("failed", "wrong result, so not timed: row 3")
    assert "time_ms" not in other


def test_a_failed_build_and_a_left_out_configuration_say_so(base, tmp_path):
    first, second = candidates_of(base, tmp_path)
    first = replace(first, cubin=None, build={"status": "failed", "reason": "15_block_tile.cu(3): error: no"})
    rows = size_rows(base, [first, second], 64, Sweep([Timing(), Timing()], None))
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert rows[0]["reason"] == "compile failed: 15_block_tile.cu(3): error: no"
    assert rows[1]["reason"] == "Kernel Tuner left it out"
    assert best_row(rows) is None


def test_ties_go_to_fewer_registers_then_less_shared_memory_then_the_first():
    def row(registers, shared, time=1.0, status="ok"):
        return {"status": status, "time_ms": time, "registers": registers, "shared_bytes": shared}

    rows = [
        row(32, 512, 1.1),
        row(48, 256),
        row(40, 512),
        row(40, 256),
        row(40, 256),
        row(8, 8, 0.1, "failed"),
    ]
    assert best_row(rows) is rows[3]


def test_results_name_the_best_of_each_size(base, tmp_path):
    rows = tune(SMALL, base, candidates_of(base, tmp_path), FakeTuner())
    write_results(SMALL, base, rows, tmp_path / "tune", tmp_path / "tuned" / "fake.csv")
    table = read_table(tmp_path / "tune" / "tune.csv", "tune")
    assert len(table) == 4
    best = read_table(tmp_path / "tuned" / "fake.csv", "tune")
    assert list(best["m"]) == [64, 96]
    assert list(best["BM"]) == [16, 32]
    assert (tmp_path / "tune" / "tune.png").stat().st_size > 1000


def test_the_proposed_entry_is_one_that_the_catalogue_takes(base, tmp_path):
    rows = tune(SMALL, base, candidates_of(base, tmp_path), FakeTuner())
    best = next(row for row in rows if row["m"] == 96 and row["best"])
    text = proposed_entry(base, best, "NVIDIA Fake")
    folder = tmp_path / "variants"
    folder.mkdir()
    for file in (repository_root() / "config" / "variants").glob("*.yaml"):
        (folder / file.name).write_text(file.read_text())
    (folder / "tuned_of_the_test.yaml").write_text(text.replace(PROPOSED_NAME, "tuned_in_a_test"))
    variant = load_catalogue(folder)["tuned_in_a_test"]
    assert dict(variant.macros) == {"BM": 32, "BN": 32, "BK": 8, "TM": 2, "TN": 2}
    assert variant.compared_with == "block_tile"
    assert variant.articles == ("S17", "S23")
    assert variant.transpose_b
    assert variant.separate_output
    assert list(yaml.safe_load(text)) == [PROPOSED_NAME]


def test_nothing_timed_is_an_error_that_keeps_the_table(base, tmp_path):
    rows = size_rows(
        base, candidates_of(base, tmp_path), 96, Sweep([Timing(fault="no"), Timing(fault="no")], None)
    )
    with pytest.raises(GemmlabError, match=r"no configuration was timed at 96 \(no\)"):
        write_results(SMALL, base, rows, tmp_path / "tune", tmp_path / "fake.csv")
    assert len(read_table(tmp_path / "tune" / "tune.csv", "tune")) == 2
    assert not (tmp_path / "fake.csv").exists()


def test_the_figure_has_a_panel_a_size_and_marks_the_fastest(base, tmp_path):
    rows = tune(SMALL, base, candidates_of(base, tmp_path), FakeTuner())
    write_table(tmp_path / "tune.csv", rows, "tune")
    table = read_table(tmp_path / "tune.csv", "tune")
    drawing = sweep_drawing(table)
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes] == ["64x64x64", "96x96x96"]
    marked = [[text.get_text() for text in axes.texts] for axes in drawing.figure.axes]
    assert [texts[0].split(":")[0] for texts in marked] == ["16x16x8, 2x2", "32x32x8, 2x2"]
    assert "dashed line is cuBLAS" in drawing.caption
    assert set(figures.save(drawing, None)) == {"svg"}
    failed = table.assign(status="failed", reason="no")
    assert sweep_drawing(failed).note == "No configuration was timed: no."


def test_configurations_compile_under_their_own_macros(base, tmp_path):
    configuration = {"BM": 16, "BN": 16, "BK": 16, "TM": 1, "TN": 1}
    too_large = configuration | {"BM": 64}
    fine, failed = build_candidates(
        base, [configuration, too_large | {"BN": 64}], "sm_90", find_nvcc(), tmp_path
    )
    assert fine.cubin.read_bytes()[:4] == b"\x7fELF"
    assert fine.build["entries"]["gemm"]["threads"] == 256
    assert fine.build["entries"]["gemm"]["shared_static_bytes"] == 4 * 17 * 32
    assert failed.cubin is None
    assert "a block has at most 1024 threads" in failed.build["reason"]


@pytest.mark.parametrize(
    ("cuda", "message"),
    [
        (None, "the sweep needs a GPU, and this machine has no CUDA driver"),
        ((13, 0), "the sweep needs a GPU and Kernel Tuner: CuPy can't be imported"),
    ],
)
def test_a_machine_without_a_gpu_is_told_so(monkeypatch, tmp_path, capsys, cuda, message):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(tune_module.driver, "cuda_version", lambda: cuda)
    words = [
        "--architecture",
        "sm_90",
        "--output-dir",
        str(tmp_path / "t"),
        "--tuned",
        str(tmp_path / "t.csv"),
    ]
    assert cli.main(["tune", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_tree_repeats_the_digest_of_a_sweep(monkeypatch, tmp_path):
    monkeypatch.setattr(tune_module.driver, "cuda_version", lambda: (13, 0))
    monkeypatch.setattr(tune_session, "KernelTunerSession", lambda space, base, seed: FakeTuner())
    space, config = load_space(repository_root() / "config" / "tune.yaml"), load_config()
    monkeypatch.setattr(
        tune_module,
        "build_candidates",
        lambda base, configurations, architecture, nvcc, folder: candidates_of(base, tmp_path, space),
    )
    words = ["--output-dir", str(tmp_path / "t"), "--tuned", str(tmp_path / "t.csv")]
    assert cli.main(["tune", "--architecture", "sm_80", "--seed", str(config["seed"]), *words]) == 0
    rows = read_rows(tmp_path / "t" / "tune.csv", "tune")
    assert len(rows) == len(space.configurations()) * len(space.sizes)
    present = tree_digests(config, load_catalogue())
    assert {row["digest"] for row in rows} == {present("tune", rows[0])}
    other = tree_digests(config | {"seed": config["seed"] + 1}, load_catalogue())
    assert other("tune", rows[0]) != rows[0]["digest"]


def test_samples_last_about_a_millisecond():
    assert launches_in_sample(4096) == 1
    assert launches_in_sample(512) == 75


def block_tile(wrong=lambda m: False):
    """The kernel on the fake GPU: D = A B^T."""

    def function(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, d, ldd):
        product = view(a, m * k).reshape(m, k) @ view(b, n * k).reshape(n, k).T
        view(d, m * n).reshape(m, n)[:] = product
        if wrong(m):
            view(d, m * n)[-1] = 7.0

    return function


def _kernel_tuner_installed():
    try:
        import kernel_tuner  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.fixture
def tunable(base, tmp_path, gpu, monkeypatch):  # noqa: F811
    """Candidates for Kernel Tuner itself over a GPU made of host memory; where it isn't installed None, and its absence
    must be reported."""
    if not _kernel_tuner_installed():
        with pytest.raises(GemmlabError, match="Kernel Tuner can't be imported"):
            KernelTunerSession(SMALL, base, 1)
        return None
    sys.modules["cupy"].ndarray = type("ndarray", (), {})
    monkeypatch.setattr(tune_session, "launches_in_sample", lambda size: 2)
    return candidates_of(base, tmp_path)


def test_kernel_tuner_times_and_checks_each_configuration(base, gpu, tunable):  # noqa: F811
    if tunable is None:
        return
    gpu.kernels["gemm"] = Kernel(block_tile(), lambda: 0.5 if gpu.launched[-1][1] == (8, 8, 1) else 0.25)
    gpu.cublas._compute = lambda self, problem, addresses: block_tile()(
        *(problem.m, problem.n, problem.k, 1, addresses[0], 0, addresses[1], 0, 0, 0, 0, addresses[2], 0)
    )
    session = KernelTunerSession(SMALL, base, 1)
    sweep = session.sweep(tunable, 64)
    assert [timing.fault for timing in sweep.timings] == [None, None]
    assert sweep.timings[0].times_ms == pytest.approx((0.5, 0.5, 0.5))
    assert sweep.timings[1].times_ms == pytest.approx((0.25, 0.25, 0.25))
    assert sweep.baseline_ms == pytest.approx(0.2)
    assert [timing.launches for timing in sweep.timings] == [2, 2]
    assert {block for _, block, _, _ in gpu.launched} == {(8, 8, 1), (16, 16, 1)}
    assert {grid for grid, _, _, _ in gpu.launched} == {(4, 4, 1), (2, 2, 1)}
    gpu.cublas._compute = lambda self, problem, addresses: None
    assert session.sweep(tunable, 64).baseline_ms is None


def test_kernel_tuner_s_wrong_results_are_no_times(base, gpu, tunable):  # noqa: F811
    if tunable is None:
        return
    gpu.kernels["gemm"] = Kernel(block_tile(wrong=lambda m: True))
    sweep = KernelTunerSession(SMALL, base, 1).sweep(tunable, 64)
    assert all("wrong result" in timing.fault for timing in sweep.timings)
    gpu.kernels["gemm"] = Kernel(block_tile(), num_regs=255, max_threads_per_block=128)
    sweep = KernelTunerSession(SMALL, base, 1).sweep(tunable, 64)
    assert sweep.timings[0].fault is None
    assert "not launchable" in sweep.timings[1].fault
