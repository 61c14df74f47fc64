"""Files: read with a message that helps, written under a temporary name and renamed when done."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml

from gemmlab.errors import GemmlabError


def repository_root() -> Path:
    """The checkout that holds this package, three folders up from it (workflow/gemmlab/files.py)."""
    return Path(__file__).resolve().parents[2]


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` so that a killed process leaves the old file or the new one, never half of one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` in one step; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp makes files that nobody else can read
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and not error.filename:
            # The system doesn't say which file a full disk cut short.
            error.filename = str(path)
        raise


def write_json(path: Path, record: Any) -> None:
    """Write `record` as indented JSON with its keys in the order given; NaN and infinities are refused."""
    write_text(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in `path`; raises GemmlabError that names the file when it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GemmlabError(
            f"{path}: no such file. The stage before this one writes it: run snakemake."
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GemmlabError(f"{path}: not JSON ({error}). Delete it and run snakemake again.") from error


# The C loader where PyYAML has it: the catalogue is read by every job.
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_SafeLoader):
    """YAML in which a key that stands twice is an error, not a silent overwrite."""


def _mapping_without_duplicates(loader: _UniqueKeyLoader, node: yaml.MappingNode, deep: bool = False) -> dict:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, Hashable):
            break  # the constructor below refuses it in its own words
        if key in seen:
            raise GemmlabError(
                f"{key_node.start_mark.name}:{line}: key {key!r} stands twice (first in line {seen[key]}). "
                "Keep one of the two."
            )
        seen[key] = line
    return _SafeLoader.construct_mapping(loader, node, deep)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)


def read_yaml(path: Path) -> Any:
    """The YAML in `path`, as UTF-8 whatever the locale says.

    Raises:
        GemmlabError: the file is missing, not UTF-8 or not YAML, or a key stands twice; one line with the cure.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise GemmlabError(f"{path}: no such file.") from error
    except OSError as error:
        raise GemmlabError(f"{path}: can't be read ({error.strerror}); expected a YAML file.") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise GemmlabError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not UTF-8. Save the file as UTF-8."
        ) from error
    stream = io.StringIO(text)
    stream.name = str(path)  # what the loader's marks call the file
    try:
        return yaml.load(stream, _UniqueKeyLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that the calendar lacks
        raise GemmlabError(_yaml_fault(path, text, error)) from error


def _yaml_fault(path: Path, text: str, error: Exception) -> str:
    """One line: where `text` isn't YAML, why, and the cure."""
    forbidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if forbidden:
        line = text.count("\n", 0, forbidden.start()) + 1
        return (
            f"{path}:{line}: not YAML: it holds the character U+{ord(forbidden[0]):04X}. "
            "Delete it, or save the file as plain text again."
        )
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{path}: not YAML: {error}. Mend the value, or put it in quotes if it is text."
    problem = f"{path}:{mark.line + 1}: not YAML: {error.problem}"
    lines = text.splitlines()[: mark.line + 1]
    if lines and re.match(r" *\t", lines[-1]):
        return f"{problem}: a tab in the indentation. Replace it by spaces."
    return f"{problem} (column {mark.column + 1}). Mend this line or the one before; quotes make text of anything."


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sha256_of(parts: Iterable[str | bytes]) -> str:
    """One SHA-256 over `parts`, each preceded by its length so that moving a border changes the digest."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def named_commit() -> str | None:
    """The commit that GEMMLAB_COMMIT names, None if it is unset or empty.

    Raises:
        GemmlabError: the value is no commit. Whatever begins a run asks early, so that no job is wasted.
    """
    named = os.environ.get("GEMMLAB_COMMIT") or None
    if named is not None and not re.fullmatch(r"[0-9a-f]{40,64}", named):
        raise GemmlabError(
            f"the environment's GEMMLAB_COMMIT is {named!r}, expected a whole commit of 40 to 64 hexadecimal digits in "
            "lower case, as `git rev-parse HEAD` prints it. Name one, or unset GEMMLAB_COMMIT to ask git."
        )
    return named


def git_head(root: Path | None = None) -> str | None:
    """The commit that is checked out in `root` (the repository if left out), or None where git can't say.

    GEMMLAB_COMMIT in the environment wins: a copy without its history (a container, an archive) can name it.

    Raises:
        GemmlabError: GEMMLAB_COMMIT is no commit.
    """
    named = named_commit()
    if named:
        return named
    command = ["git", "-C", str(root or repository_root()), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
