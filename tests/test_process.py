from __future__ import annotations

import sys
import time
from pathlib import Path

from gemmlab.process import run_process


def test_a_program_that_is_not_there_is_a_result_and_no_exception() -> None:
    completed = run_process(["/no/such/program"], timeout_s=5)
    assert completed.returncode == 127
    assert "/no/such/program" in completed.stderr


def test_the_output_and_the_exit_status_come_back(tmp_path: Path) -> None:
    script = "import os, sys; print(os.getcwd()); print('bad', file=sys.stderr); sys.exit(3)"
    completed = run_process([sys.executable, "-c", script], timeout_s=20, folder=tmp_path)
    assert (completed.returncode, completed.timed_out) == (3, False)
    assert completed.output.splitlines() == [str(tmp_path), "bad"]


def test_a_limit_that_passes_ends_the_children_too(tmp_path: Path) -> None:
    marker = tmp_path / "still-alive"
    grandchild = f"import time, pathlib; time.sleep(1.2); pathlib.Path({str(marker)!r}).touch()"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    completed = run_process([sys.executable, "-c", script], timeout_s=0.5)
    assert completed.timed_out
    assert completed.returncode < 0
    time.sleep(1.2)
    assert not marker.exists()
