from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gemmlab import toolchain
from gemmlab.errors import GemmlabError
from gemmlab.toolchain import Nvcc, find_nvcc, find_ptxas, parse_nvcc_version, supported_architectures

VERSION = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release {release}, V{release}.88
Build cuda_{release}.r{release}/compiler.36424714_0
"""


def fake_nvcc(folder: Path, release: str = "13.0", status: int = 0) -> Path:
    """A shell script that answers --version, as a wrapper does."""
    path = folder / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{VERSION.format(release=release)}END\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nothing_but_what_a_test_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "TOOLKIT_FOLDERS", ())
    monkeypatch.setattr(toolchain, "wheel_folder", lambda: None)


def test_a_broken_cuda_home_is_read_entry_by_entry(tmp_path: Path) -> None:
    path = fake_nvcc(tmp_path / "cuda")
    nvcc = find_nvcc(environment={"CUDA_HOME": f":/no/such/folder:{tmp_path / 'cuda'}", "PATH": ""})
    assert (nvcc.path, nvcc.release, nvcc.origin) == (path, (13, 0), "CUDA_HOME")
    assert nvcc.build == "V13.0.88, cuda_13.0.r13.0/compiler.36424714_0"


def test_cuda_home_comes_before_path_and_path_before_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, on_path, wheel = (fake_nvcc(tmp_path / name) for name in ("home", "path", "wheel"))
    monkeypatch.setattr(toolchain, "wheel_folder", lambda: wheel.parent)
    environment = {"CUDA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_nvcc(environment=environment).path == home
    assert find_nvcc(environment={"PATH": str(on_path.parent)}).path == on_path
    assert find_nvcc(environment={"PATH": ""}).path == wheel
    assert find_nvcc("wheel", environment=environment).path == wheel
    assert find_nvcc(str(on_path), environment=environment).path == on_path


def test_no_nvcc_says_in_one_line_what_was_looked_for_where() -> None:
    with pytest.raises(GemmlabError) as error:
        find_nvcc(environment={"CUDA_HOME": ":/opt/nothing", "PATH": "/no/such"})
    message = str(error.value)
    assert "\n" not in message
    for words in (
        "CUDA_HOME: no /opt/nothing/bin/nvcc",
        "PATH: not there",
        "wheel: not there",
        "pip install",
    ):
        assert words in message


def test_an_nvcc_that_fails_is_passed_over_and_named(tmp_path: Path) -> None:
    broken = fake_nvcc(tmp_path / "broken", status=127)
    good = fake_nvcc(tmp_path / "good")
    environment = {"CUDA_HOME": str(tmp_path / "broken"), "PATH": str(good.parent)}
    assert find_nvcc(environment=environment).path == good
    with pytest.raises(GemmlabError, match="ended with status 127"):
        find_nvcc(str(broken))


def test_a_driver_passes_over_an_nvcc_of_a_later_major_release(tmp_path: Path) -> None:
    newer, older = fake_nvcc(tmp_path / "newer", "13.0"), fake_nvcc(tmp_path / "older", "12.8")
    environment = {"CUDA_HOME": f"{tmp_path / 'newer'}:{tmp_path / 'older'}", "PATH": ""}
    assert find_nvcc(environment=environment, driver_cuda=(12, 4)).path == older
    assert find_nvcc(environment=environment, driver_cuda=(13, 0)).path == newer
    assert find_nvcc(environment=environment).path == newer
    # Nothing older: the emulator still needs its PTX.
    only = {"CUDA_HOME": str(tmp_path / "newer"), "PATH": ""}
    assert find_nvcc(environment=only, driver_cuda=(12, 4)).path == newer


@pytest.mark.parametrize(
    ("release", "cuda", "words"),
    [
        ((13, 0), None, "no driver"),
        ((13, 0), (13, 0), "loads cubins of nvcc 13.0"),
        ((13, 3), (13, 0), "loads cubins of nvcc 13.3"),
        ((13, 0), (12, 4), "supports CUDA 12.4, can't load cubins of nvcc 13.0"),
    ],
)
def test_the_verdict_names_release_driver_and_cuda(
    release: tuple[int, int], cuda: tuple[int, int] | None, words: str
) -> None:
    nvcc = Nvcc(Path("nvcc"), release, "V", "PATH")
    verdict = toolchain.driver_verdict(nvcc, "550.54.14", cuda)
    assert words in verdict
    assert cuda is None or "550.54.14" in verdict


def test_a_version_text_without_a_release_is_no_nvcc() -> None:
    assert parse_nvcc_version("something else", Path("nvcc"), "PATH") is None
    assert parse_nvcc_version("release 12.9", Path("nvcc"), "PATH").build == ""


def test_the_real_nvcc_lists_its_architectures_and_has_a_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    nvcc = find_nvcc()
    architectures = supported_architectures(nvcc)
    assert "sm_90" in architectures
    assert list(architectures) == sorted(architectures, key=lambda name: int(name[3:]))
    assert find_ptxas(nvcc).is_file()


def test_ptxas_is_found_behind_a_shell_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    nvcc = find_nvcc()
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec "{nvcc.path}" "$@"\n')
    wrapper.chmod(0o755)
    wrapped = find_nvcc(str(wrapper))
    assert wrapped.release == nvcc.release
    assert find_ptxas(wrapped) == find_ptxas(dataclasses.replace(nvcc))
