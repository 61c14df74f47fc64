"""Child processes: an argument list, a time limit, and a group of their own that ends with them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Completed:
    """How a child process ended. `returncode` is 127 if it couldn't be started and negative if a signal ended it."""

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def output(self) -> str:
        """Standard error after standard output."""
        return "\n".join(text for text in (self.stdout.strip("\n"), self.stderr.strip("\n")) if text)


def run_process(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Completed:
    """Run `command` and wait for it; whatever it started is killed when the limit passes or we are interrupted.

    Args:
        command: program and arguments; no shell reads them.
        timeout_s: limit in seconds.
        folder: the working directory.
        environment: the whole environment; this process's own if left out.

    Returns:
        Exit status and output. A program that can't be started is a result too (status 127), not an exception.
    """
    try:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Completed(127, "", f"{command[0]}: {error.strerror or error}")
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        stdout, stderr = process.communicate()
        return Completed(process.returncode, stdout, stderr, timed_out=True)
    except BaseException:
        _kill_group(process)
        process.wait()
        raise
    return Completed(process.returncode, stdout, stderr)


def _kill_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
