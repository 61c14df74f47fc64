from __future__ import annotations

import ast

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root
from gemmlab.sources import _imported_files, _module_file, inputs_digest, stage_sources


def test_imports_are_followed_through_modules():
    files = stage_sources("check")
    for module in (
        "check",
        "oracle",
        "arithmetic",
        "shapes",
        "catalogue",
        "executors/base",
        "executors/emulator",
    ):
        assert f"workflow/gemmlab/{module}.py" in files
    assert "workflow/gemmlab/figures.py" not in files
    assert "workflow/gemmlab/cli.py" not in files


def test_imports_are_those_that_a_parser_finds():
    modules = sorted((repository_root() / "workflow" / "gemmlab").rglob("*.py"))
    assert len(modules) > 80
    for module in modules:
        names = set()
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: relative imports aren't followed"
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        parsed = {_module_file(name) for name in names if name.split(".")[0] == "gemmlab"} - {None}
        assert set(_imported_files(module)) == parsed, module


def test_measuring_stages_do_not_depend_on_presentation():
    for stage in ("compile", "check", "count", "bench", "profile"):
        presentation = {"figures", "report", "tables", "publish", "gate"}
        assert not presentation & {
            file.split("/")[-1].removesuffix(".py") for file in stage_sources(stage)
        }, stage


def test_unknown_stage():
    with pytest.raises(GemmlabError, match=r"no module gemmlab\.cook"):
        stage_sources("cook")


def test_digest_covers_settings_and_variant(catalogue):
    naive, tile = catalogue["naive"], catalogue["tile16"]
    first = inputs_digest("count", naive, [[1, 2, 3]])
    assert first == inputs_digest("count", naive, [[1, 2, 3]])
    assert (
        len({first, inputs_digest("count", naive, [[1, 2, 4]]), inputs_digest("count", tile, [[1, 2, 3]])})
        == 3
    )
