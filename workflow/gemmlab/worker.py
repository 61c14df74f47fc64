"""Work in a process of its own: a device fault, a crash or a hang takes that process, not the run."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import IO

from gemmlab.errors import GemmlabError
from gemmlab.files import write_text
from gemmlab.process import Completed, run_processes

MISTAKE = 2
_FORKS = multiprocessing.get_context("fork")
_TAIL_CHARACTERS = 8000
_PR_SET_PDEATHSIG = 1
_SIGNAL_MEANINGS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
    signal.SIGKILL: "killed, often for want of memory",
    signal.SIGTERM: "asked to end",
}


@dataclass(frozen=True)
class WorkerResult:
    """How a worker ended.

    Attributes:
        returncode: exit status; negative if a signal ended the process, 127 if it couldn't be started.
        timed_out: whether the time limit ended it.
        stdout_tail: the last 8000 characters of its standard output.
        stderr_tail: the last 8000 characters of its standard error.
        time_limit_s: the limit that it ran under, seconds.
    """

    returncode: int
    timed_out: bool
    stdout_tail: str
    stderr_tail: str
    time_limit_s: float

    @property
    def death(self) -> str | None:
        """Why the worker didn't end well, in words, or None if it did."""
        if self.timed_out:
            return f"no end within {self.time_limit_s:g} s; its process group was ended"
        if self.returncode == 0:
            return None
        lines = self.stderr_tail.strip().splitlines()
        last_line = f": {lines[-1].strip()}" if lines else ""
        if self.returncode > 0:
            return f"the process ended with status {self.returncode}{last_line}"
        try:
            number = signal.Signals(-self.returncode)
        except ValueError:
            return f"signal {-self.returncode} ended the process{last_line}"
        meaning = _SIGNAL_MEANINGS.get(number)
        return f"{number.name} ended the process" + (f" ({meaning})" if meaning else "") + last_line


def run_worker(command: Sequence[str], time_limit_s: float, log: Path | None) -> WorkerResult:
    """Run `command` in a process group of its own, which is killed when the limit passes or this process must end.

    Args:
        command: program and arguments.
        time_limit_s: limit in seconds.
        log: a file for the whole of its output, if any.
    """
    (completed,) = _run([command], time_limit_s)
    if log is not None:
        write_text(log, completed.output + "\n")
    return _result(completed, time_limit_s)


def run_workers(commands: Sequence[Sequence[str]], time_limit_s: float) -> list[WorkerResult]:
    """Run `commands` side by side, each as `run_worker` does; the limit counts from now for each."""
    return [_result(completed, time_limit_s) for completed in _run(commands, time_limit_s)]


def _run(commands: Sequence[Sequence[str]], time_limit_s: float) -> list[Completed]:
    with _terminated_as_exception():
        return run_processes(commands, timeout_s=time_limit_s)


def _result(completed: Completed, time_limit_s: float) -> WorkerResult:
    return WorkerResult(
        returncode=completed.returncode,
        timed_out=completed.timed_out,
        stdout_tail=completed.stdout[-_TAIL_CHARACTERS:],
        stderr_tail=completed.stderr[-_TAIL_CHARACTERS:],
        time_limit_s=time_limit_s,
    )


def run_forked(task: Callable[[], None], time_limit_s: float) -> WorkerResult:
    """Run `task` in a fork of this process, in a group of its own that is killed as `run_worker` says.

    A fork spares the start of an interpreter and its imports, half a second a job. What `task` does is lost but for
    what it prints and the files that it writes. Its GemmlabError is printed and gives the status `MISTAKE`. This
    process must not have initialised CUDA, which doesn't survive a fork.

    Args:
        task: what to do.
        time_limit_s: limit in seconds.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, _terminated_as_exception():
        process = _FORKS.Process(target=_run_task, args=(task, stdout.fileno(), stderr.fileno()))
        sys.stdout.flush()
        sys.stderr.flush()
        process.start()
        try:
            process.join(time_limit_s)
        finally:
            timed_out = process.is_alive()
            if timed_out:
                _kill(process)
        return WorkerResult(process.exitcode, timed_out, _tail(stdout), _tail(stderr), time_limit_s)


def _tail(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")[-_TAIL_CHARACTERS:]


def _run_task(task: Callable[[], None], stdout: int, stderr: int) -> None:
    os.setsid()
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    try:
        task()
    except GemmlabError as error:
        print(error, file=sys.stderr)
        sys.exit(MISTAKE)


def _kill(process: BaseProcess) -> None:
    # Before it has a group of its own, only the process itself can be meant.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, even by SIGKILL, so that no GPU job is left behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that run_process kills the worker's group before we go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
