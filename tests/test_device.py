from __future__ import annotations

import time
from pathlib import Path

import pytest

from gemmlab import device, driver
from gemmlab.device import Device, Gpu, gpu_of, parse_capability, resolve, slug, visible_gpus
from gemmlab.errors import GemmlabError

H200 = Gpu("NVIDIA H200", "GPU-5e1a6f0e", (9, 0))
A100 = Gpu("NVIDIA A100-SXM4-80GB", "GPU-9b6f7c3d", (8, 0))
AUTO = {"device": "auto", "architecture": "sm_90", "nvcc": "auto"}


@pytest.fixture(autouse=True)
def fresh_probe() -> None:
    device._probe.cache_clear()
    yield
    device._probe.cache_clear()


def found(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu) -> None:
    monkeypatch.setattr(device, "_probe", lambda: Device(gpus, "580.159.04", (13, 0)))


def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_probe", lambda: "nvidia-smi is not installed")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("Tesla T4", "tesla-t4"),
    ],
)
def test_a_slug_is_the_name_as_a_folder(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_a_card_in_slices_is_another_device() -> None:
    row = {"name": "NVIDIA H200", "uuid": "GPU-1", "compute_cap": "9.0", "mig.mode.current": "Enabled"}
    assert gpu_of(row).slug == "nvidia-h200-mig"
    assert gpu_of(row | {"mig.mode.current": "[N/A]"}).slug == "nvidia-h200"


@pytest.mark.parametrize("text", ["Failed", "9", "9.0a", " 9.0", "9,0", "", None])
def test_only_digits_and_a_point_are_a_compute_capability(text: str | None) -> None:
    assert parse_capability(text) is None


def test_a_capability_becomes_an_architecture() -> None:
    assert Gpu("x", "GPU-1", parse_capability("12.0")).architecture == "sm_120"
    assert Gpu("x", "GPU-1", None).architecture is None


def test_the_driver_is_asked_where_nvidia_smi_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        device, "query", lambda _: [{"name": "NVIDIA H200", "uuid": "GPU-1", "compute_cap": "[N/A]"}]
    )
    monkeypatch.setattr(driver, "compute_capability", lambda uuid: (9, 0) if uuid == "GPU-1" else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device.probe().gpus[0].architecture == "sm_90"


def test_no_nvidia_smi_is_quick_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    begin = time.perf_counter()
    assert device.probe() is None
    assert time.perf_counter() - begin < 0.05
    assert device.probe_failure() == "nvidia-smi is not installed"


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, (H200, A100)),
        ("1", (A100,)),
        ("1,0", (A100, H200)),
        ("GPU-9b6f", (A100,)),
        ("0,7,1", (H200,)),
        ("", ()),
        ("-1", ()),
        ("MIG-123", (H200, A100)),
    ],
)
def test_hidden_cards_are_not_ours(variable: str | None, expected: tuple[Gpu, ...]) -> None:
    assert visible_gpus((H200, A100), variable) == expected


def test_auto_takes_the_first_card(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, H200, A100)
    target = resolve(AUTO)
    assert (target.slug, target.architecture, target.has_gpu) == ("nvidia-h200", "sm_90", True)
    assert target.fingerprint["gpu"] == "NVIDIA H200"
    assert target.fingerprint["driver"] == "580"
    assert target.fingerprint["toolkit"] == "13.0"


def test_auto_without_a_card_is_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu(monkeypatch)
    target = resolve(AUTO | {"architecture": "sm_80"})
    assert (target.slug, target.architecture, target.has_gpu) == ("emulator-sm_80", "sm_80", False)


def test_none_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_probe", lambda: pytest.fail("the GPU was asked"))
    assert resolve(AUTO | {"device": "none"}).slug == "emulator-sm_90"


def test_a_named_device_gives_the_same_parameters_on_a_login_node(monkeypatch: pytest.MonkeyPatch) -> None:
    named = AUTO | {"device": "nvidia-h200"}
    no_gpu(monkeypatch)
    at_login = resolve(named)
    assert (at_login.slug, at_login.architecture, at_login.has_gpu) == ("nvidia-h200", "sm_90", True)
    found(monkeypatch, H200)
    assert resolve(named).fingerprint == at_login.fingerprint


def test_a_named_device_that_is_here_tells_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, A100)
    named = AUTO | {"device": A100.slug}
    assert resolve(named).architecture == "sm_80"
    assert resolve(named | {"device": "nvidia-h200"}).architecture == "sm_90"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    for name in ("nvidia-a100", "nvidia-h200"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_a_named_device_that_is_not_here_is_told_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, published: Path
) -> None:
    no_gpu(monkeypatch)
    told = device.absent_device("nvidia-h20", published)
    assert told.startswith("device is nvidia-h20, but there is no GPU here (nvidia-smi is not installed);")
    assert "known are auto, none, nvidia-a100, nvidia-h200." in told
    assert device.absent_device("nvidia-h200", published) is not None
    found(monkeypatch, H200, A100)
    told = device.absent_device("nvidia-h20", published)
    assert "the GPU here is nvidia-h200, nvidia-a100-sxm4-80gb;" in told
    assert "known are auto, none, nvidia-h200, nvidia-a100-sxm4-80gb, nvidia-a100." in told
    assert "\n" not in told


def test_a_device_that_is_here_or_was_not_named_is_no_news(
    monkeypatch: pytest.MonkeyPatch, published: Path
) -> None:
    found(monkeypatch, H200, A100)
    for choice in ("auto", "none", "nvidia-h200", A100.slug):
        assert device.absent_device(choice, published) is None
    monkeypatch.setattr(device, "_probe", lambda: pytest.fail("the GPU was asked"))
    assert device.absent_device("none", published) is None


def test_a_card_without_a_compute_capability_is_a_mistake_with_a_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found(monkeypatch, Gpu("NVIDIA H200", "GPU-1", None))
    with pytest.raises(GemmlabError, match=r"compute capability.*device: nvidia-h200"):
        resolve(AUTO)


def test_a_missing_nvcc_does_not_stop_the_snakefile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_gpu(monkeypatch)
    assert resolve(AUTO | {"nvcc": str(tmp_path / "nvcc")}).toolkit is None
