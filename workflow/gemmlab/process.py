"""Child processes: an argument list, a time limit, and a group of their own that ends with them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO


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
    return run_processes([command], timeout_s=timeout_s, folder=folder, environment=environment)[0]


def run_processes(
    commands: Sequence[Sequence[str | Path]],
    *,
    timeout_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Completed]:
    """Run `commands` side by side and wait for all, each as `run_process` does; the limit counts from now for each."""
    deadline = time.monotonic() + timeout_s
    running: list[_Running | Completed] = []
    try:
        for command in commands:
            running.append(_start(command, folder, environment))
        return [each.wait(deadline) if isinstance(each, _Running) else each for each in running]
    except BaseException:
        for each in running:
            if isinstance(each, _Running):
                each.kill()
        raise


@dataclass(frozen=True)
class _Running:
    """A child in a group of its own. Its output goes to files: a full pipe would stop it while others are awaited."""

    process: subprocess.Popen
    stdout: IO[bytes]
    stderr: IO[bytes]

    def wait(self, deadline: float) -> Completed:
        try:
            self.process.wait(timeout=max(0.0, deadline - time.monotonic()))
            timed_out = False
        except subprocess.TimeoutExpired:
            self.kill()
            timed_out = True
        return Completed(self.process.returncode, _read(self.stdout), _read(self.stderr), timed_out)

    def kill(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _start(
    command: Sequence[str | Path], folder: Path | None, environment: Mapping[str, str] | None
) -> _Running | Completed:
    stdout, stderr = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 - read and closed at the end
    try:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return Completed(127, "", f"{command[0]}: {error.strerror or error}")
    return _Running(process, stdout, stderr)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    with io.TextIOWrapper(file, errors="replace") as text:
        return text.read()
