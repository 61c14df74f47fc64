"""The environment that the workflow's jobs inherit."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def prepare(package_parent: str) -> None:
    """Let jobs use the package in `package_parent` and the interpreter that runs now.

    `python3` in a job is then this interpreter even if its environment wasn't activated, and a job imports the
    package beside its Snakefile even if another checkout is installed.
    """
    packages = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package_parent, packages]))
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
