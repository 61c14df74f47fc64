from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gemmlab.executors.base import Unavailable
from gemmlab.timing import lock

HOLD = """
import sys
from pathlib import Path
from gemmlab.timing import lock
lock.lock_path = lambda uuid: Path(sys.argv[1])
lock.hold_gpu("GPU-1")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "gpu.lock"
    monkeypatch.setattr(lock, "lock_path", lambda uuid: file)
    monkeypatch.setattr(lock, "_held", {})
    return file


def test_a_gpu_held_by_another_process_is_waited_for_then_refused_by_name(path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable, match=f"GPU-1 is in use .*process {holder.pid}, lock {path}"):
            lock.hold_gpu("GPU-1", wait_s=0.2)
    finally:
        holder.communicate()
    lock.hold_gpu("GPU-1", wait_s=0)
    assert path.read_text().strip().isdigit()


def test_asking_twice_in_a_process_is_no_deadlock(path: Path) -> None:
    lock.hold_gpu("GPU-1", wait_s=0)
    lock.hold_gpu("GPU-1", wait_s=0)


def test_a_lock_file_that_is_read_only_serves_as_well(path: Path) -> None:
    path.touch(mode=0o444)
    lock.hold_gpu("GPU-1", wait_s=0)
