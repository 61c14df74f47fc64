from __future__ import annotations

import shutil

import pytest

from gemmlab import cli, new
from gemmlab.catalogue import load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root
from gemmlab.process import run_process
from gemmlab.toolchain import find_nvcc


@pytest.fixture
def root(tmp_path):
    for folder in ("kernels", "config/variants"):
        shutil.copytree(repository_root() / folder, tmp_path / folder)
    return tmp_path


def test_the_scaffold_is_a_variant_that_compiles(root):
    idea = 'columns first: "k" # and then rows'
    taken = {file.name[:2] for file in (root / "kernels").glob("*.cu")}
    kernel, entry = new.create("my_kernel", idea, compared_with="tile32", root=root)
    assert kernel.name[2:] == "_my_kernel.cu"
    assert kernel.name[:2] == min(f"{number:02}" for number in range(1, 30) if f"{number:02}" not in taken)
    assert entry == root / "config" / "variants" / "my_kernel.yaml"
    variant = load_catalogue(root / "config" / "variants", root)["my_kernel"]
    assert variant.idea == idea
    assert variant.compared_with == "tile32"
    assert variant.tile == (16, 16, 16)
    assert kernel.read_text().startswith(f"// Idea: {idea}\n")
    assert "@" not in kernel.read_text() + entry.read_text()
    result = run_process(
        [
            find_nvcc().path,
            "-arch=compute_90",
            "-ptx",
            "-Werror",
            "all-warnings",
            "-o",
            root / "x.ptx",
            kernel,
        ],
        timeout_s=60,
    )
    assert result.returncode == 0, result.output


def test_a_number_can_be_chosen(root):
    kernel, _ = new.create("other", "a test", number=89, root=root)
    assert kernel.name == "89_other.cu"


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("naive", {}, "stands in 2_ladder.yaml"),
        ("check", {}, "is a stage"),
        ("2fast", {}, "can't be a target"),
        ("kernels", {}, "also a file or folder"),
        ("mine", {"number": 1}, "01_naive.cu has it"),
        ("mine", {"number": 100}, "expected 1 to 99"),
        ("mine", {"compared_with": "nobody"}, "no such variant"),
        ("mine", {"idea": "two\nlines"}, "in one line"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(root, name, choices, message):
    before = sorted(root.rglob("*"))
    with pytest.raises(GemmlabError, match=message):
        new.create(name, choices.pop("idea", "a test"), root=root, **choices)
    assert sorted(root.rglob("*")) == before


def test_an_entry_file_of_that_name_is_left_alone(root):
    entry = root / "config" / "variants" / "mine.yaml"
    entry.write_text("# notes\n")
    with pytest.raises(GemmlabError, match="exists already"):
        new.create("mine", "a test", root=root)
    assert entry.read_text() == "# notes\n"


def test_the_command_reports_what_to_do_next(root, monkeypatch, capsys):
    monkeypatch.setattr(new, "repository_root", lambda: root)
    assert cli.main(["new", "my_kernel"]) == 0
    assert "snakemake --cores 1 my_kernel" in capsys.readouterr().out
    assert cli.main(["new", "my_kernel"]) == 2


@pytest.mark.parametrize("name", ["2fast", "check", "kernels", "naive"])
def test_an_error_names_the_command_once(root, monkeypatch, capsys, name):
    monkeypatch.setattr(new, "repository_root", lambda: root)
    assert cli.main(["new", name]) == 2
    assert capsys.readouterr().err.count("gemmlab new") == 1
