"""The kernels as texts and as entries: each tells its idea, is in the catalogue and compiles without a warning."""

from __future__ import annotations

import json
import re

import pytest

from gemmlab.catalogue import source_files
from gemmlab.files import repository_root
from gemmlab.process import run_process
from gemmlab.toolchain import find_nvcc

KERNELS = repository_root() / "kernels"
RIGHT = sorted(KERNELS.glob("*.cu"))
BROKEN = sorted((KERNELS / "broken").glob("*.cu"))
HEADERS = sorted((KERNELS / "common").glob("*.cuh"))


def header(file):
    return "".join(line for line in file.read_text().split("#", 1)[0].splitlines(keepends=True))


@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.name)
def test_kernel_opens_with_its_idea(file):
    assert re.fullmatch(r"\d\d_[a-z0-9_]+\.cu", file.name)
    text = header(file)
    words = ("Idea", "Result", "From") if file.name >= "90" else ("Idea", "Tile", "Budget", "Expect", "From")
    positions = [text.find(f"// {word}: ") for word in words]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert positions[0] == 0


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.name)
def test_broken_kernel_opens_with_its_mistake_and_names_the_right_one(file, catalogue):
    text = header(file)
    assert text.startswith("// Mistake: ")
    assert "// Symptom: " in text
    right = re.search(r"// Right: (kernels/\S+\.cu)\.", text)[1]
    entry = next(variant for variant in catalogue.values() if variant.source == f"kernels/broken/{file.name}")
    assert entry.kind == "broken"
    assert catalogue[entry.compared_with].source == right


@pytest.mark.parametrize("file", [*RIGHT, *BROKEN, *HEADERS], ids=lambda file: file.name)
def test_lines_are_short_and_every_entry_point_has_launch_bounds(file):
    text = file.read_text()
    assert max(len(line) for line in text.splitlines()) <= 98
    assert "\t" not in text
    assert text.endswith("}\n") or file.suffix == ".cuh"
    assert text.count("__global__") == text.count("__global__ void __launch_bounds__(")


def test_every_kernel_and_header_is_used(catalogue):
    used = {name for variant in catalogue.values() for name in source_files(variant)}
    root = repository_root()
    assert [str(file.relative_to(root)) for file in [*RIGHT, *BROKEN, *HEADERS]] == sorted(
        used, key=lambda name: (name.startswith("kernels/common"), name.startswith("kernels/broken"), name)
    )


def test_no_macro_is_misspelt(catalogue):
    """A -D that neither the source nor a formula knows would silently change nothing."""
    root = repository_root()
    for variant in catalogue.values():
        formulas = {key: value for key, value in variant.entry_text.items() if key not in ("macros", "idea")}
        text = json.dumps(formulas) + "".join((root / name).read_text() for name in source_files(variant))
        for macro in variant.macros:
            assert re.search(rf"\b{macro}\b", text), f"{variant.name}: {macro}"


def test_every_kernel_of_the_articles_is_a_variant(catalogue):
    found = {article for variant in catalogue.values() for article in variant.articles}
    assert found >= {f"S{number}" for number in range(1, 25)}


def test_at_least_sixteen_broken_kernels(catalogue):
    broken = [variant for variant in catalogue.values() if variant.kind == "broken"]
    assert len(broken) >= 16
    assert len({variant.source for variant in broken}) == len(broken)


def test_kernels_compile_without_a_warning_and_without_macros(tmp_path):
    nvcc = find_nvcc()
    options = ["-t", "2", "-arch=compute_90", "-ptx", "-Werror", "all-warnings"]
    result = run_process([nvcc.path, *options, *RIGHT], timeout_s=120, folder=tmp_path)
    assert result.returncode == 0, result.output
    assert result.output == ""
    assert {file.stem for file in tmp_path.glob("*.ptx")} == {file.stem for file in RIGHT}
