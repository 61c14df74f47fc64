from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
import yaml

from gemmlab import compile as stage
from gemmlab import toolchain
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.cli import main
from gemmlab.compile import compile_variant, read_record
from gemmlab.cubin import cubin_architecture
from gemmlab.errors import GemmlabError
from gemmlab.files import sha256_file
from gemmlab.ptx import entry_names
from gemmlab.toolchain import Nvcc, find_nvcc

HEADER = "#pragma once\n__device__ __forceinline__ float twice(float x) { return x + x; }\n"
GOOD = """#include "common/twice.cuh"
#include <mma.h>
extern "C" __global__ void __launch_bounds__(256) gemm(int m, float* c)
{
    __shared__ float tile[SIZE];
    extern __shared__ float more[];
    tile[threadIdx.x] = c[threadIdx.x];
    more[threadIdx.x] = 0.0f;
    __syncthreads();
    c[threadIdx.x] = twice(tile[255 - threadIdx.x]) + more[0];
}
extern "C" __global__ void reduce(float* c) { c[threadIdx.x] += 1.0f; }
"""
SOURCES = {
    "good.cu": GOOD,
    "shared.cu": 'extern "C" __global__ void gemm(float* c)\n{\n    __shared__ float tile[13000];\n'
    "    tile[threadIdx.x] = c[0];\n    __syncthreads();\n    c[threadIdx.x] = tile[12999 - threadIdx.x];\n}\n",
    "syntax.cu": 'extern "C" __global__ void gemm(float* c)\n{\n    c[0] = nothing;\n}\n',
    "mangled.cu": "__global__ void gemm(float* c) { c[0] = 1.0f; }\n",
    "wgmma.cu": 'extern "C" __global__ void gemm()\n{\n    asm volatile("wgmma.fence.sync.aligned;");\n}\n',
}
LAUNCH = {
    "idea": "a test",
    "block": [256],
    "grid": ["cdiv(m, 256)"],
    "kind": "broken",
    "stands_for": "a test",
}
ENTRIES = {
    "good": LAUNCH | {"source": "kernels/good.cu", "macros": {"SIZE": 256}, "shared_bytes": "SIZE * 4"},
    "two_launches": {
        "idea": "a test",
        "kind": "broken",
        "stands_for": "a test",
        "source": "kernels/good.cu",
        "macros": {"SIZE": 512},
        "launches": [
            {"entry": "reduce", "block": [32, 4], "grid": [1]},
            {"entry": "gemm", "block": [256], "grid": [1]},
        ],
    },
    "shared": LAUNCH | {"source": "kernels/shared.cu"},
    "syntax": LAUNCH | {"source": "kernels/syntax.cu"},
    "mangled": LAUNCH | {"source": "kernels/mangled.cu"},
    "misspelt": LAUNCH | {"source": "kernels/good.cu", "macros": {"SIZE": 256}, "entry": "gem"},
    "plain_wgmma": LAUNCH | {"source": "kernels/wgmma.cu"},
    "wgmma": LAUNCH
    | {"source": "kernels/wgmma.cu", "architecture_suffix": "a", "least_architecture": "sm_90"},
    "library": {"idea": "a test", "kind": "baseline", "library": "cublas"},
}


# Disassembling takes a third of a second, which most of these tests needn't spend.
NO_NVDISASM = Path("/no/such/nvdisasm")


@pytest.fixture(scope="module")
def nvcc() -> Nvcc:
    return find_nvcc()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a space and an accent in its path."""
    root = tmp_path_factory.mktemp("projét x")
    (root / "kernels" / "common").mkdir(parents=True)
    (root / "kernels" / "common" / "twice.cuh").write_text(HEADER)
    for name, text in SOURCES.items():
        (root / "kernels" / name).write_text(text)
    (root / "config" / "variants").mkdir(parents=True)
    (root / "config" / "variants" / "test.yaml").write_text(yaml.safe_dump(ENTRIES, sort_keys=False))
    return root


@pytest.fixture(scope="module")
def variants(root: Path) -> dict[str, Variant]:
    return load_catalogue(root / "config" / "variants", root)


@pytest.fixture(scope="module")
def good(variants: dict[str, Variant], nvcc: Nvcc, root: Path) -> stage.Build:
    return compile_variant(variants["good"], "sm_90", nvcc, root=root)


def test_a_good_kernel_gives_ptx_cubin_and_what_it_uses(good: stage.Build) -> None:
    assert (good.record["status"], good.record["reason"]) == ("ok", None)
    assert entry_names(good.ptx) == ["gemm", "reduce"]
    assert cubin_architecture(good.cubin) == "sm_90"
    entry = good.record["entries"]["gemm"]
    assert list(good.record["entries"]) == ["gemm"]
    assert (entry["shared_static_bytes"], entry["shared_dynamic_bytes"], entry["threads"]) == (
        1024,
        1024,
        256,
    )
    assert 8 <= entry["registers"] <= 64
    assert (entry["spill_store_bytes"], entry["spill_load_bytes"], entry["barriers"]) == (0, 0, 1)
    assert (entry["blocks_per_sm"], entry["occupancy"], entry["occupancy_limit"]) == (8, 1.0, "threads")
    assert entry["sass"]["BAR"] == 1
    assert entry["sass"]["LDS"] == 2


def test_no_path_of_this_machine_is_in_what_is_built(good: stage.Build, root: Path, nvcc: Nvcc) -> None:
    assert b'"kernels/good.cu"' in good.ptx
    assert b'"kernels/common/twice.cuh"' in good.ptx
    forbidden = [root, toolchain.toolkit_binaries(nvcc).parent, Path("/tmp"), Path("/home"), Path("/usr")]
    for folder in forbidden:
        assert os.fsencode(f"{folder}/") not in good.ptx
        assert os.fsencode(f"{folder}/") not in good.cubin
    for key in ("nvcc_command", "ptxas_command", "log"):
        assert "/tmp" not in good.record[key]
    assert good.record["nvcc_command"].startswith("nvcc -ptx -lineinfo")
    assert "-DSIZE=256" in good.record["nvcc_command"]


def test_a_touch_and_another_folder_change_no_byte(
    good: stage.Build, variants: dict[str, Variant], nvcc: Nvcc, root: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere"
    (copy / "kernels" / "common").mkdir(parents=True)
    for name in ("good.cu", "common/twice.cuh"):
        (copy / "kernels" / name).write_text((root / "kernels" / name).read_text())
        os.utime(copy / "kernels" / name, (1, 1))
    again = compile_variant(variants["good"], "sm_90", nvcc, root=copy, nvdisasm=NO_NVDISASM)
    assert again.record["cubin_sha256"] == good.record["cubin_sha256"]
    assert again.record["ptx_sha256"] == good.record["ptx_sha256"]


def test_several_launches_stand_in_their_order(variants: dict[str, Variant], nvcc: Nvcc, root: Path) -> None:
    entries = compile_variant(
        variants["two_launches"], "sm_90", nvcc, root=root, nvdisasm=NO_NVDISASM
    ).record["entries"]
    assert list(entries) == ["reduce", "gemm"]
    assert (entries["reduce"]["threads"], entries["reduce"]["shared_static_bytes"]) == (128, 0)
    assert (entries["gemm"]["threads"], entries["gemm"]["shared_static_bytes"]) == (256, 2048)


def test_another_architecture_is_one_more_call(variants: dict[str, Variant], nvcc: Nvcc, root: Path) -> None:
    build = compile_variant(variants["good"], "sm_80", nvcc, root=root, nvdisasm=NO_NVDISASM)
    assert build.record["architecture"] == "sm_80"
    assert cubin_architecture(build.cubin) == "sm_80"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shared", "gemm needs 52000 bytes of static shared memory, limit 49152"),
        ("syntax", 'kernels/syntax.cu(3): error: identifier "nothing" is undefined'),
        (
            "mangled",
            "kernel gemm not found in kernels/mangled.cu; found: _Z4gemmPf (a name that begins with _Z",
        ),
        ("misspelt", "kernel gem not found in kernels/good.cu; found: gemm, reduce"),
        ("plain_wgmma", "kernels/wgmma.cu:3: ptxas error: Instruction 'wgmma.fence' not supported"),
    ],
)
def test_a_kernel_that_does_not_build_says_why(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path, name: str, reason: str
) -> None:
    build = compile_variant(variants[name], "sm_90", nvcc, root=root)
    assert build.record["status"] == "failed"
    assert reason in build.record["reason"]
    assert (build.ptx, build.cubin) == (b"", b"")


def test_the_suffix_is_added_and_stands_in_the_ptx(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path
) -> None:
    build = compile_variant(variants["wgmma"], "sm_90", nvcc, root=root, nvdisasm=NO_NVDISASM)
    assert (build.record["status"], build.record["architecture"]) == ("ok", "sm_90a")
    assert b".target sm_90a" in build.ptx


def test_a_variant_for_later_cards_is_skipped(variants: dict[str, Variant], nvcc: Nvcc, root: Path) -> None:
    record = compile_variant(variants["wgmma"], "sm_80", nvcc, root=root).record
    assert (record["status"], record["reason"]) == ("skipped", "needs sm_90 or later, this is sm_80")


@pytest.mark.parametrize("architecture", ["sm_70", "sm_999", "", "90", "9.0", "sm_90a", "native"])
def test_an_architecture_that_nvcc_does_not_list_is_refused(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path, architecture: str
) -> None:
    with pytest.raises(GemmlabError) as error:
        compile_variant(variants["good"], architecture, nvcc, root=root)
    assert repr(architecture) in str(error.value)
    assert "Supported: sm_75, sm_80" in str(error.value)


def test_a_variant_without_a_source_is_a_mistake(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path
) -> None:
    with pytest.raises(GemmlabError, match="baseline has no kernel source"):
        compile_variant(variants["library"], "sm_90", nvcc, root=root)


@pytest.mark.parametrize("key", ["compiler_flags", "ptxas_flags"])
def test_flags_that_choose_the_architecture_are_refused(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path, key: str
) -> None:
    variant = dataclasses.replace(variants["good"], **{key: ("-arch=native",)})
    with pytest.raises(GemmlabError, match=f"variant good: {key}: '-arch=native' is refused"):
        compile_variant(variant, "sm_90", nvcc, root=root)


def test_options_in_the_environment_do_not_reach_nvcc(
    good: stage.Build, variants: dict[str, Variant], nvcc: Nvcc, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DSIZE=9 -arch=compute_75")
    again = compile_variant(variants["good"], "sm_90", nvcc, root=root, nvdisasm=NO_NVDISASM)
    assert again.record["cubin_sha256"] == good.record["cubin_sha256"]


def test_without_nvdisasm_the_mix_is_null_with_a_reason(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "find_nvdisasm", lambda _: None)
    entry = compile_variant(variants["good"], "sm_90", nvcc, root=root).record["entries"]["gemm"]
    assert entry["sass"] is None
    assert "nvdisasm is missing" in entry["sass_reason"]
    assert entry["registers"] > 0


def test_no_host_compiler_is_said_with_the_cure(
    variants: dict[str, Variant], nvcc: Nvcc, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    with pytest.raises(GemmlabError, match=r"no host compiler.*apt-get install g\+\+"):
        compile_variant(variants["good"], "sm_90", nvcc, root=root)


@pytest.fixture
def repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command run over the little repository instead of this one."""
    monkeypatch.setattr(stage, "repository_root", lambda: root)
    monkeypatch.setattr(stage, "load_catalogue", lambda: load_catalogue(root / "config" / "variants", root))
    monkeypatch.setattr(stage, "inputs_digest", lambda *_: "0123456789abcdef")
    return root


def command(folder: Path, variant: str, architecture: str = "sm_90") -> list[str]:
    return [
        *("compile", "--variant", variant, "--architecture", architecture, "--nvcc", "auto"),
        *(
            "--ptx",
            f"{folder / 'v.ptx'}",
            "--cubin",
            f"{folder / 'v.cubin'}",
            "--record",
            f"{folder / 'v.json'}",
        ),
    ]


def test_the_command_writes_three_files_that_belong_together(repository: Path, tmp_path: Path) -> None:
    assert main(command(tmp_path, "good")) == 0
    record = read_record(tmp_path / "v.json")
    assert record["ptx_sha256"] == sha256_file(tmp_path / "v.ptx")
    assert record["cubin_sha256"] == sha256_file(tmp_path / "v.cubin")
    assert record["digest"] == "0123456789abcdef"


def test_an_old_cubin_never_outlives_a_syntax_error(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "v.cubin").write_bytes(b"of yesterday")
    (tmp_path / "v.ptx").write_bytes(b"of yesterday")
    assert main(command(tmp_path, "syntax")) == 0
    assert read_record(tmp_path / "v.json")["status"] == "failed"
    assert (tmp_path / "v.cubin").read_bytes() == b""
    assert (tmp_path / "v.ptx").read_bytes() == b""


def test_a_mistake_is_one_line_and_leaves_no_old_build(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v.cubin").write_bytes(b"of yesterday")
    (tmp_path / "v.json").write_text("{}")
    assert main(command(tmp_path, "good", "sm_999")) == 2
    assert capsys.readouterr().err.startswith("gemmlab compile: architecture is 'sm_999'")
    assert (tmp_path / "v.cubin").read_bytes() == b""
    assert not (tmp_path / "v.json").exists()


def test_an_unknown_variant_is_named(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path, "nothing")) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_record_of_another_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"variant": "x", "status": "fine", "reason": null}')
    with pytest.raises(GemmlabError, match="status is"):
        read_record(tmp_path / "v.json")
