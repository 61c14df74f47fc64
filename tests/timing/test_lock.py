from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gemmlab.executors.base import Unavailable
from gemmlab.timing import lock

HOLD = """
import sys
from pathlib import Path
from gemmlab.timing import lock
lock.lock_path = lambda uuid: Path(sys.argv[1])
lock.hold_gpu("GPU-1", shared=sys.argv[2] == "shared")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "gpu.lock"
    monkeypatch.setattr(lock, "lock_path", lambda uuid: file if uuid == "GPU-1" else tmp_path / uuid)
    monkeypatch.setattr(lock, "_held", {})
    return file


@contextlib.contextmanager
def holder(path: Path, how: str) -> Iterator[subprocess.Popen]:
    """Another process that holds the GPU."""
    command = [sys.executable, "-c", HOLD, str(path), how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.communicate()


def test_a_gpu_held_by_another_process_is_waited_for_then_refused_by_name(path: Path) -> None:
    with holder(path, "alone") as other:
        for shared in (False, True):
            with pytest.raises(Unavailable, match=f"GPU-1 is in use .*process {other.pid}, lock {path}"):
                lock.hold_gpu("GPU-1", shared=shared, wait_s=0.1)
    lock.hold_gpu("GPU-1", wait_s=0)
    assert path.read_text().strip().isdigit()


def test_who_shares_is_no_obstacle_to_who_shares_but_to_a_timing(path: Path) -> None:
    with holder(path, "shared"):
        with pytest.raises(Unavailable, match="in use"):
            lock.hold_gpu("GPU-1", wait_s=0.1)
        lock.hold_gpu("GPU-1", shared=True, wait_s=0)


def test_who_waits_for_the_gpu_to_itself_comes_before_new_sharers(path: Path) -> None:
    with holder(path, "shared"):
        waiting = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), "alone"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            turn = path.with_suffix(".turn")
            assert wait_until(lambda: locked(turn))
            with pytest.raises(Unavailable, match="in use"):
                lock.hold_gpu("GPU-1", shared=True, wait_s=0.1)
        except BaseException:
            waiting.kill()
            raise
    assert waiting.stdout.readline() == "held\n"
    waiting.communicate()
    lock.hold_gpu("GPU-1", shared=True, wait_s=0)


def locked(path: Path) -> bool:
    """Whether another process keeps `path` to itself."""
    if not path.is_file():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_asking_again_in_a_process_is_no_deadlock_and_never_less_than_asked(path: Path) -> None:
    lock.hold_gpu("GPU-1", wait_s=0)
    lock.hold_gpu("GPU-1", shared=True, wait_s=0)
    lock.hold_gpu("GPU-1", wait_s=0)
    lock.hold_gpu("GPU-2", shared=True, wait_s=0)
    with pytest.raises(ValueError, match="GPU-2 is shared"):
        lock.hold_gpu("GPU-2", wait_s=0)


def test_a_lock_file_that_is_read_only_serves_as_well(path: Path) -> None:
    path.touch(mode=0o444)
    lock.hold_gpu("GPU-1", wait_s=0)
