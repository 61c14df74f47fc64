from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gemmlab import doctor
from gemmlab.device import Gpu
from gemmlab.doctor import MISSING, OK, WRONG, CupyAnswer, Facts, Item, examine, render
from gemmlab.toolchain import Nvcc

NVCC_13 = Nvcc(Path("/usr/local/cuda/bin/nvcc"), (13, 0), "V13.0.88", "PATH")
NVCC_12 = Nvcc(Path("/opt/cuda-12.8/bin/nvcc"), (12, 8), "V12.8.93", "CUDA_HOME")
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
H200 = Gpu("NVIDIA H200", "GPU-1", (9, 0))
WITHOUT_GPU = Facts(
    requirements={"numpy": ">=2.2"},
    locked={"numpy": "2.4.6"},
    installed={"numpy": "2.4.6"},
    gxx="12.2.0",
    nvcc=NVCC_13,
    architectures=ARCHITECTURES,
    gpu_failure="nvidia-smi is not installed",
    nvdisasm=True,
    free_bytes=10**11,
)
WITH_GPU = dataclasses.replace(
    WITHOUT_GPU,
    installed={"numpy": "2.4.6", "cupy-cuda12x": "14.2.0", "nvidia-ml-py": "13.0"},
    driver_version="580.159.04",
    driver_cuda=(13, 0),
    gpus=(H200,),
    gpu_failure=None,
    cupy=CupyAnswer("14.2.0", 12090, 120901, (12,)),
    ncu=True,
    compute_sanitizer=True,
)


def judge(facts: Facts, name: str, **changes: object) -> Item:
    return next(item for item in examine(dataclasses.replace(facts, **changes)) if item.name == name)


def test_a_machine_that_has_everything_is_all_ok() -> None:
    assert {item.state for item in examine(WITH_GPU)} == {OK}


def test_a_machine_without_a_gpu_has_nothing_wrong() -> None:
    items = examine(WITHOUT_GPU)
    assert not [item for item in items if item.state == WRONG]
    gpu = next(item for item in items if item.name == "GPU")
    assert (gpu.state, gpu.cost) == (MISSING, "speeds are unavailable; kernels run on the emulator")


def test_two_cupy_wheels_are_named_with_the_two_commands_that_mend_it() -> None:
    installed = WITH_GPU.installed | {"cupy-cuda13x": "14.1.0"}
    item = judge(WITH_GPU, "CuPy", installed=installed)
    assert item.state == WRONG
    assert "cupy-cuda12x 14.2.0 and cupy-cuda13x 14.1.0" in item.finding
    uninstall, install = item.cures
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in uninstall
    assert "pip install" in install
    assert "requirements-gpu-cu12.lock" in install


def test_a_toolkit_newer_than_the_driver_is_explained() -> None:
    item = judge(WITH_GPU, "driver", driver_version="550.54.14", driver_cuda=(12, 4))
    assert item.state == WRONG
    for words in ("13.0", "550.54.14", "CUDA 12.4"):
        assert words in item.finding
    assert any("13.0" in cure for cure in item.cures)
    assert any("nvcc=/usr/local/cuda-12/bin/nvcc" in cure for cure in item.cures)


def test_an_nvcc_that_was_passed_over_is_named() -> None:
    changes = {"nvcc": NVCC_12, "passed_over": NVCC_13, "driver_cuda": (12, 4)}
    assert judge(WITH_GPU, "driver", **changes).state == OK
    item = judge(WITH_GPU, "nvcc", **changes)
    assert item.state == OK
    assert "passed over /usr/local/cuda/bin/nvcc, whose 13.0 the driver can't load" in item.finding


def test_a_driver_mismatch_is_wrong_and_mended_by_a_reboot() -> None:
    failure = "nvidia-smi lists no GPU: Failed to initialize NVML: Driver/library version mismatch"
    item = judge(WITHOUT_GPU, "GPU", gpu_failure=failure)
    assert (item.state, item.cures) == (WRONG, ("sudo reboot",))


@pytest.mark.parametrize(
    ("capability", "words"),
    [((7, 0), "sm_70 of the NVIDIA Old is none of nvcc's"), ((13, 0), "sm_130 of the NVIDIA Old")],
)
def test_a_card_that_nvcc_has_no_image_for(capability: tuple[int, int], words: str) -> None:
    item = judge(WITH_GPU, "architecture", gpus=(Gpu("NVIDIA Old", "GPU-1", capability),))
    assert item.state == WRONG
    assert words in item.finding
    assert ("earlier" if capability < (9, 0) else "later") in item.cures[0]


def test_a_card_without_a_compute_capability() -> None:
    item = judge(WITH_GPU, "architecture", gpus=(Gpu("NVIDIA H200", "GPU-1", None),))
    assert item.state == WRONG
    assert "device=nvidia-h200 architecture=sm_90" in item.cures[0]


def test_the_configured_architecture_counts_without_a_card() -> None:
    assert judge(WITHOUT_GPU, "architecture", architecture="sm_70").state == WRONG
    assert judge(WITHOUT_GPU, "architecture", architecture="sm_80").state == OK


def test_cupy_for_a_later_cuda_than_the_driver() -> None:
    installed = {"numpy": "2.4.6", "cupy-cuda13x": "14.2.0"}
    item = judge(WITH_GPU, "CuPy", installed=installed, driver_cuda=(12, 4))
    assert item.state == WRONG
    assert "needs CUDA 13, the driver supports 12.4" in item.finding


def test_a_cupy_that_does_not_work_says_what_it_said() -> None:
    item = judge(WITH_GPU, "CuPy", cupy=CupyAnswer(error="ImportError: libnvrtc.so.12: cannot open"))
    assert item.state == WRONG
    assert "libnvrtc.so.12" in item.finding


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (CupyAnswer("14.2.0", 12090, 120901, (12,)), OK),
        (CupyAnswer("14.2.0", 13000, 130100, (13,)), OK),
        (CupyAnswer("14.2.0", 12090, 130100, (13,)), WRONG),
        (CupyAnswer("14.2.0", 12090, 120901, (12, 13)), WRONG),
        (None, MISSING),
    ],
)
def test_the_cublas_that_is_loaded_has_to_be_cupys(answer: CupyAnswer | None, state: str) -> None:
    assert judge(WITH_GPU, "cuBLAS", cupy=answer).state == state


def test_counters_that_may_be_refused_come_with_the_cure() -> None:
    item = judge(WITH_GPU, "ncu", counters_for_root_only=True)
    assert item.state == MISSING
    assert "NVreg_RestrictProfilingToAdminUsers=0" in item.cures[0]
    assert judge(WITH_GPU, "ncu", counters_for_root_only=True, is_root=True).state == OK
    assert judge(WITH_GPU, "ncu", ncu=False).state == MISSING


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Python", {"python": (3, 10, 4), "requires_python": ">=3.11,<3.14"}),
        ("Python", {"system": "Darwin"}),
        ("packages", {"installed": {}}),
        ("packages", {"installed": {"numpy": "1.26.4"}}),
        ("configuration", {"config_error": "config.yaml: seed is -1"}),
        ("g++", {"gxx": None}),
        ("nvcc", {"nvcc": None, "nvcc_error": "no nvcc with nvcc: auto"}),
        ("NVML", {"nvml_error": "NVMLError_LibRmVersionMismatch"}),
        ("disk", {"free_bytes": 1000}),
    ],
)
def test_what_stops_a_run_is_wrong_and_has_a_cure(name: str, changes: dict) -> None:
    item = judge(WITH_GPU, name, **changes)
    assert item.state == WRONG
    assert item.cost
    assert item.cures


def test_another_version_that_fits_is_told_but_not_wrong() -> None:
    item = judge(WITH_GPU, "packages", installed=WITH_GPU.installed | {"numpy": "2.3.0"})
    assert item.state == OK
    assert "numpy 2.3.0 (lock: 2.4.6)" in item.finding


def test_the_table_shows_cost_and_cure_of_what_is_not_ok() -> None:
    text = render(examine(WITHOUT_GPU))
    assert "costs: speeds are unavailable; kernels run on the emulator" in text
    assert all(len(line) <= 120 for line in text.splitlines() if "cure:" not in line)
    assert text.splitlines()[0].split()[:2] == ["Python", "ok"]


def test_the_exit_status_says_whether_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "gather", lambda: WITHOUT_GPU)
    assert doctor.run(None) == 0
    monkeypatch.setattr(doctor, "gather", lambda: dataclasses.replace(WITHOUT_GPU, gxx=None))
    assert doctor.run(None) == 1
    assert "apt-get install g++" in capsys.readouterr().out


def test_this_machine_can_be_examined() -> None:
    facts = doctor.gather()
    assert facts.nvcc is not None
    assert facts.requirements["numpy"].startswith(">=")
    assert "cuda-toolkit" not in facts.requirements
    assert len(examine(facts)) == len(examine(WITH_GPU))
