"""Which modules of the package decide a stage's result: what Snakemake watches and what a digest covers."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from gemmlab.catalogue import Variant, source_files
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root, sha256_file, sha256_of

_PACKAGE = "gemmlab"
# Every job reads some thirty modules for its digest: a parser would take a tenth of a second for what a test holds
# against it. A name too many (`as`, a comment's words) is no module, so it does no harm.
_IMPORT = re.compile(
    rf"^ *(?:from ({_PACKAGE}[\w.]*) import (\([^)]*\)|.*)|import ({_PACKAGE}[\w.]*))", re.MULTILINE
)
_NAME = re.compile(r"\w+")


@functools.cache
def stage_sources(stage: str) -> tuple[str, ...]:
    """The files of gemmlab.<stage> and of everything it imports from the package, relative to the repository.

    Imports inside functions count too. The C++ emulator is no module: rules and digests that run it name
    `emulator_sources()` besides.

    Raises:
        GemmlabError: there is no such stage.
    """
    root = repository_root()
    start = _module_file(f"{_PACKAGE}.{stage}")
    if start is None:
        raise GemmlabError(f"there is no module {_PACKAGE}.{stage}.")
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        waiting.extend(_imported_files(file))
    return tuple(sorted(str(file.relative_to(root)) for file in found))


def emulator_sources() -> tuple[str, ...]:
    """The C++ files of the emulator, relative to the repository."""
    root = repository_root()
    folder = root / "workflow" / "emulator"
    files = [file for pattern in ("*.cpp", "*.hpp", "*.h") for file in folder.rglob(pattern)]
    return tuple(sorted(str(file.relative_to(root)) for file in files))


def inputs_digest(stage: str, variant: Variant, settings: object, *, emulator: bool = False) -> str:
    """A digest of what decides the result of `stage` for `variant`: code, kernel files, entry and settings.

    `settings` is the part of the configuration that the stage reads; its text counts.
    """
    root = repository_root()
    files = [*stage_sources(stage), *source_files(variant)]
    if emulator:
        files += emulator_sources()
    parts = [stage, variant.name, repr(variant.entry_text), repr(settings)]
    for file in files:
        parts += [file, sha256_file(root / file)]
    return sha256_of(parts)[:16]


def _imported_files(file: Path) -> list[Path]:
    names: list[str] = []
    for module, members, plain in _IMPORT.findall(file.read_text()):
        names.append(module or plain)
        names += [f"{module}.{member}" for member in _NAME.findall(members)]
    files = [_module_file(name) for name in names]
    return [file for file in files if file is not None]


def _module_file(name: str) -> Path | None:
    base = repository_root() / "workflow" / Path(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None
