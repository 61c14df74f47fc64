"""The emulator's library, built once a session, and a way to run small pieces of PTX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ptx_pieces import Piece

from gemmlab import emulator_build
from gemmlab.executors.emulator import EmulatorExecutor


@pytest.fixture(scope="session")
def library() -> Path:
    return emulator_build.library()


@pytest.fixture
def load(library: Path, tmp_path: Path) -> Callable[..., EmulatorExecutor]:
    """Give a function that loads PTX text."""
    count = 0

    def load_text(text: str, **options) -> EmulatorExecutor:
        nonlocal count
        count += 1
        path = tmp_path / f"{count}.ptx"
        path.write_text(text, encoding="utf-8")
        return EmulatorExecutor(path, library=library, **options)

    return load_text


@pytest.fixture
def piece(load) -> Piece:
    return Piece(load)
