from __future__ import annotations

import re

import pytest

from gemmlab.catalogue import RESERVED, load_catalogue, select, source_files
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import Pointer, Scalar, TensorMap
from gemmlab.files import repository_root
from gemmlab.problem import Problem

ENTRY = """
  idea: a test
  source: kernels/x.cu
  macros: {BM: 16, BN: 32}
  block: [BN, BM]
  grid: ["cdiv(n, BN)", "cdiv(m, BM)"]
  tile: [BM, BN, 4]
"""
BASELINE = """
cublas_fp32:
  idea: library
  kind: baseline
  library: cublas
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "kernels" / "common").mkdir(parents=True)
    (tmp_path / "kernels" / "x.cu").write_text('#include "common/a.cuh"\n// #include <math.h>\n')
    (tmp_path / "kernels" / "common" / "a.cuh").write_text('#include "b.cuh"\n')
    (tmp_path / "kernels" / "common" / "b.cuh").write_text("#pragma once\n")
    return tmp_path


def load(root, text):
    folder = root / "config" / "variants"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.yaml").write_text(BASELINE + text)
    return load_catalogue(folder, root)


def test_small_entry_gets_its_defaults(root):
    variant = load(root, f"one:{ENTRY}")["one"]
    (launch,) = variant.plan(Problem.packed(100, 70, 5, alpha=1, beta=-0.5))
    assert (launch.entry, launch.grid, launch.block) == ("gemm", (3, 7, 1), (32, 16, 1))
    assert launch.arguments[0] == Scalar("int32", 100)
    assert launch.arguments[3] == Scalar("float32", 1)
    assert launch.arguments[4] == Pointer("a")
    assert len(launch.arguments) == 11
    assert (variant.tile, variant.baseline) == ((16, 32, 4), "cublas_fp32")


def test_separate_output_adds_d(root):
    variant = load(root, f"one:{ENTRY}  separate_output: true\n  transpose_b: true\n")["one"]
    (launch,) = variant.plan(Problem.packed(8, 9, 10, transpose_b=True))
    assert launch.arguments[-2:] == (Pointer("d"), Scalar("int32", 9))


def test_launches_workspace_and_tensor_map(root):
    text = f"""one:{ENTRY}  workspace: {{split: {{elements: 2 * m * n}}}}
  launches:
    - {{entry: split_a, arguments: {{m: int32, a: pointer, split: pointer}}}}
    - entry: multiply
      cluster: [2]
      shared_bytes: 4 * BM
      arguments:
        b_map: {{tensor_map: b, box: [BM, BN], swizzle: 128}}
        c: pointer
        parts: {{type: int32, value: 1 + 1}}
"""
    variant = load(root, text)["one"]
    problem = Problem.packed(8, 12, 20)
    first, second = variant.plan(problem)
    assert [first.entry, second.entry] == ["split_a", "multiply"]
    assert second.arguments == (TensorMap("b", 20, 12, 12, 16, 32, 128), Pointer("c"), Scalar("int32", 2))
    assert (second.shared_bytes, second.cluster) == (64, (2, 1, 1))
    assert variant.workspace_elements(problem) == {"split": (192, "float32")}


@pytest.mark.parametrize(
    "name", ["all", "check", "gate", "environment", "doctor", "tune", "null", "NA", "nan", "kernels"]
)
def test_reserved_and_existing_names_are_refused_with_the_reason(root, name):
    with pytest.raises(GemmlabError, match=rf"variant {name}: the name .*choose another"):
        load(root, f'"{name}":{ENTRY}')


def test_every_rule_s_name_is_reserved():
    rules = [repository_root() / "Snakefile", *(repository_root() / "workflow" / "rules").glob("*.smk")]
    names = {name for file in rules for name in re.findall(r"^ *rule (\w+):", file.read_text(), re.MULTILINE)}
    assert len(names) > 10
    assert names <= RESERVED


@pytest.mark.parametrize("name", ["1e3", "a-b", "a b", "../x", "naïve"])
def test_names_that_are_no_target_are_refused(root, name):
    with pytest.raises(GemmlabError, match="can't be a target"):
        load(root, f'"{name}":{ENTRY}')


def test_yaml_words_are_no_names(root):
    with pytest.raises(GemmlabError, match="the name None can't be a target"):
        load(root, f"null:{ENTRY}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("  colour: red\n", "unknown key colour"),
        ("  kind: fast\n", "kind is"),
        ("  baseline: cublas_fp8\n", "baseline is cublas_fp8; baselines of the catalogue: cublas_fp32"),
        ("  compared_with: nothing\n", "compared_with names nothing"),
        ("  compared_with: one\n", "compared_with names the variant itself"),
        ("  compiler_flags: [-arch=native]\n", "compiler_flags"),
        ("  cluster: [0]\n", "cluster of gemm is"),
        ("  constraints: [k % 4 = 0]\n", "can't be read"),
        ("  constraints: [rows == 0]\n", "unknown name rows"),
        ("  shared_bytes: 4 * BK\n", "unknown name BK"),
        ("  arguments: {m: int32, x: pointer}\n", "argument x is a pointer to no buffer"),
        ("  arguments: {m: int32, rows: int32}\n", "argument rows is an integer without a value"),
        ("  arguments: {gamma: float32}\n", "argument gamma is float32; only alpha and beta are"),
        ("  kind: broken\n", "lacks the key stands_for"),
        ("  articles: [A1]\n", "articles\\[0\\]"),
        ("  least_architecture: '90'\n", "least_architecture is"),
    ],
)
def test_faulty_entry_says_what_was_expected(root, change, expected):
    with pytest.raises(GemmlabError, match=expected):
        load(root, f"one:{ENTRY}{change}")


DISPATCH = "{idea: a choice, kind: dispatch, candidates: [%s]}"


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ("one, chooses", "variant chooses: candidates names the variant itself"),
        ("one, other", "variant chooses: candidates names other, which is a dispatch too"),
    ],
)
def test_a_dispatch_chooses_among_variants_that_run(root, candidates, expected):
    text = f"one:{ENTRY}chooses: {DISPATCH % candidates}\nother: {DISPATCH % 'one'}\n"
    with pytest.raises(GemmlabError, match=expected):
        load(root, text)


def test_two_variants_may_be_compared_with_each_other(root):
    catalogue = load(root, f"one:{ENTRY}  compared_with: two\ntwo:{ENTRY}  compared_with: one\n")
    assert list(select(catalogue, ["one"])) == ["cublas_fp32", "one"]


def test_missing_source_is_named(root):
    with pytest.raises(GemmlabError, match=r"source kernels/y.cu is no file"):
        load(root, f"one:{ENTRY.replace('x.cu', 'y.cu')}")


def test_same_name_in_two_files(root):
    load(root, f"one:{ENTRY}")
    folder = root / "config" / "variants"
    (folder / "zzz.yaml").write_text(f"one:{ENTRY}")
    with pytest.raises(GemmlabError, match=r"zzz.yaml, variant one: .* stands in test.yaml too"):
        load_catalogue(folder, root)


def test_unsupported_problems_are_refused_with_the_numbers(root):
    variant = load(root, f"one:{ENTRY}  constraints: [k % 4 == 0]\n")["one"]
    assert variant.unsupported(Problem.packed(8, 8, 8)) is None
    assert "needs k % 4 == 0, got 8 x 8 x 7" in variant.unsupported(Problem.packed(8, 8, 7))
    assert f"matrix A spans {2**31} elements" in variant.unsupported(Problem.packed(2**16, 1, 2**15))
    assert variant.unsupported(Problem.packed(2**15, 1, 2**16 - 4)) is None


def test_architecture_limits(root):
    variant = load(root, f"one:{ENTRY}  least_architecture: sm_90\n")["one"]
    assert variant.architecture_unsupported("sm_90") is None
    assert "needs sm_90 or later, this is sm_86" in variant.architecture_unsupported("sm_86")


def test_source_files_follow_quoted_includes(root):
    variant = load(root, f"one:{ENTRY}")["one"]
    assert source_files(variant, root) == ["kernels/x.cu", "kernels/common/a.cuh", "kernels/common/b.cuh"]
    (root / "kernels" / "common" / "b.cuh").write_text('#include "gone.cuh"\n')
    assert (
        source_files(variant, root)[-1] == "kernels/common/b.cuh"
    )  # nvcc names what is gone, for this variant alone


def test_selection_brings_its_baseline(root):
    catalogue = load(root, f"one:{ENTRY}two:{ENTRY}")
    assert list(select(catalogue, ["two"])) == ["cublas_fp32", "two"]
    assert list(select(catalogue, [])) == list(catalogue)
    with pytest.raises(GemmlabError, match="variants names three"):
        select(catalogue, ["three"])


@pytest.mark.parametrize("fault", [{"m": 0}, {"n": -1}, {"k": 8.5}, {"lda": 2}])
def test_problem_refuses_impossible_sides(fault):
    sides = {"m": 8, "n": 8, "k": 8, "lda": 8, "ldb": 8, "ldc": 8, "ldd": 8} | fault
    with pytest.raises(GemmlabError, match=f"{next(iter(fault))} is"):
        Problem(**sides)


def test_real_catalogue_loads_and_every_reference_holds(catalogue):
    assert {"naive", "tile16", "register8x8", "cublas_fp32"} <= set(catalogue)
    for variant in catalogue.values():
        assert all(source_files(variant)), variant.name
