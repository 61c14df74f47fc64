from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.worker import MISTAKE, run_forked, run_worker, run_workers


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_worker_that_ends_well_has_no_death(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    result = run_worker(python("import sys; print('out'); print('err', file=sys.stderr)"), 20, log)
    assert (result.returncode, result.timed_out, result.death) == (0, False, None)
    assert (result.stdout_tail, result.stderr_tail) == ("out\n", "err\n")
    assert log.read_text() == "out\nerr\n"


def test_the_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    child = tmp_path / "child.pid"
    code = (
        "import subprocess, sys, time, pathlib; "
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        f"pathlib.Path({str(child)!r}).write_text(str(p.pid)); time.sleep(60)"
    )
    result = run_worker(python(code), 1.5, None)
    assert result.timed_out
    assert result.death == "no end within 1.5 s; its process group was ended"
    assert ended(int(child.read_text()))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            r"SIGSEGV ended the process \(segmentation fault\)",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            r"SIGKILL .*killed, often for want of memory",
        ),
        ("import sys; print('lost', file=sys.stderr); sys.exit(3)", "ended with status 3: lost"),
    ],
)
def test_a_death_is_named(code: str, words: str) -> None:
    assert re.search(words, run_worker(python(code), 20, None).death)


def test_a_program_that_does_not_exist_is_a_result() -> None:
    assert run_worker(["/no/such/program"], 5, None).returncode == 127


def test_a_terminated_parent_takes_the_worker_along(tmp_path: Path) -> None:
    child = tmp_path / "child.pid"
    worker = (
        f"import os, time, pathlib; pathlib.Path({str(child)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    parent = parent_of(worker)
    try:
        assert wait_until(lambda: child.is_file() and child.read_text())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(timeout=10) == 128 + signal.SIGTERM
        assert ended(int(child.read_text()))
    finally:
        parent.kill()
        parent.wait()


def test_a_worker_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    child = tmp_path / "child.pid"
    worker = (
        "import os, time, pathlib; from gemmlab.worker import end_with_parent; end_with_parent(); "
        f"pathlib.Path({str(child)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    parent = parent_of(worker)
    try:
        assert wait_until(lambda: child.is_file() and child.read_text())
    finally:
        parent.kill()
        parent.wait()
    assert ended(int(child.read_text()))


def parent_of(worker: str) -> subprocess.Popen:
    """A process that runs the Python code `worker` as its worker."""
    call = f"run_worker([sys.executable, '-c', {worker!r}], 60, None)"
    return subprocess.Popen(python(f"import sys; from gemmlab.worker import run_worker; {call}"))


def ended(process: int) -> bool:
    """Whether a process is gone, or dead and only waiting for its parent, within ten seconds."""
    return wait_until(lambda: not running(process))


def running(process: int) -> bool:
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until(condition) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_fork_that_ends_well_leaves_its_files_and_its_words(tmp_path: Path) -> None:
    def task() -> None:
        print("out")
        print("err", file=sys.stderr)
        (tmp_path / "answer").write_text(str(os.getpgrp()))

    result = run_forked(task, 20)
    assert (result.returncode, result.timed_out, result.death) == (0, False, None)
    assert (result.stdout_tail, result.stderr_tail) == ("out\n", "err\n")
    assert int((tmp_path / "answer").read_text()) != os.getpgrp()


def test_the_time_limit_ends_a_fork_and_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child.pid"

    def task() -> None:
        process = subprocess.Popen(python("import time; time.sleep(60)"))
        child.write_text(str(process.pid))
        process.wait()

    result = run_forked(task, 1)
    assert result.death == "no end within 1 s; its process group was ended"
    assert ended(int(child.read_text()))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"SIGKILL ended the process \(killed, often for want"),
        (lambda: 1 // 0, "ended with status 1: ZeroDivisionError"),
    ],
)
def test_a_fork_s_death_is_named(task, words: str) -> None:
    assert re.search(words, run_forked(task, 20).death)


def test_a_mistake_that_a_fork_explains_has_its_own_status() -> None:
    def task() -> None:
        raise GemmlabError("config.yaml: seed is -1")

    result = run_forked(task, 20)
    assert (result.returncode, result.stderr_tail) == (MISTAKE, "config.yaml: seed is -1\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_ends_with_its_parent(tmp_path: Path, number: int) -> None:
    child = tmp_path / "child.pid"
    task = f"pathlib.Path({str(child)!r}).write_text(str(os.getpid())) and time.sleep(60)"
    code = f"import os, pathlib, time; from gemmlab.worker import run_forked; run_forked(lambda: {task}, 60)"
    parent = subprocess.Popen(python(code))
    try:
        assert wait_until(lambda: child.is_file() and child.read_text())
        parent.send_signal(number)
        parent.wait(timeout=10)
        assert ended(int(child.read_text()))
    finally:
        parent.kill()
        parent.wait()


def test_workers_run_side_by_side_and_each_has_its_own_end() -> None:
    sleep = "import sys, time; time.sleep({}); print({}); sys.exit({})"
    began = time.monotonic()
    results = run_workers([python(sleep.format(*row)) for row in ((60, 1, 0), (0, 2, 3), (0.1, 4, 0))], 2)
    assert time.monotonic() - began < 10
    assert [result.timed_out for result in results] == [True, False, False]
    assert [result.stdout_tail for result in results] == ["", "2\n", "4\n"]
    assert results[1].returncode == 3


def test_much_output_of_one_stops_no_other() -> None:
    loud = python("print('x' * 10**6)")
    results = run_workers([python("import time; time.sleep(0.5)"), loud, loud], 20)
    assert [result.death for result in results] == [None] * 3
