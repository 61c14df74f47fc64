"""Python packages: what the locks ask for and what is installed."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = "requirements.lock"
GPU_LOCK = "requirements-gpu-cu12.lock"
_CUPY = re.compile(r"cupy(-cuda\d+x|-rocm.*)?")


def parse_lock(text: str) -> dict[str, str]:
    """Version by canonical name of every package that a lock names for this platform and Python."""
    locked = {}
    for line in text.splitlines():
        line = line.split("#")[0].rstrip("\\ ").strip()
        if not line or line.startswith("-"):
            continue
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            version = next(iter(requirement.specifier)).version
            locked[canonicalize_name(requirement.name)] = version
    return locked


def read_lock(path: Path) -> dict[str, str]:
    """`parse_lock` of a file; empty if there is no such file."""
    return parse_lock(path.read_text()) if path.is_file() else {}


def installed_packages() -> dict[str, str]:
    """Version by canonical name of every installed distribution."""
    return {
        canonicalize_name(name): distribution.version
        for distribution in importlib.metadata.distributions()
        if (name := distribution.metadata["Name"])
    }


def cupy_packages(installed: dict[str, str]) -> dict[str, str]:
    """Those of `installed` that bring a `cupy` module: more than one overwrite each other."""
    return {name: version for name, version in installed.items() if _CUPY.fullmatch(name)}
