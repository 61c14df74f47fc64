"""Who may use a GPU when: a lock file by the GPU's uuid, besides Snakemake's `gpu` resource.

What is timed or profiled has the GPU to itself. Checks and the sanitizer, which only ask whether a result is right,
share it with each other. Whoever waits for the GPU to itself keeps a second lock, the turn, without which nobody gets
the first one: so that a stream of checks lets a timing in.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from pathlib import Path

from gemmlab.executors.base import Unavailable

WAIT_S = 300.0
_POLL_S = 0.05
# Locks live as long as the process: whoever asks again in the same process has the GPU already. By uuid: whether the
# hold is shared, and the descriptor of the file.
_held: dict[str, tuple[bool, int]] = {}


def lock_path(uuid: str) -> Path:
    """The lock file of the GPU `uuid`, in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"gemmlab-{uuid}.lock"


def hold_gpu(uuid: str, *, shared: bool = False, wait_s: float = WAIT_S) -> None:
    """Wait until no other gemmlab process stands in the way and hold the GPU until this process ends.

    Args:
        uuid: the GPU's uuid.
        shared: whether others that share may use it at the same time.
        wait_s: how long to wait, seconds.

    Raises:
        Unavailable: another process kept the GPU all the time; the message names it and the file.
        ValueError: the process shares the GPU and now wants it for itself, which could wait for ever.
    """
    if uuid in _held:
        if _held[uuid][0] and not shared:
            raise ValueError(
                f"GPU {uuid} is shared by this process: take it for yourself before anything else"
            )
        return
    path, deadline = lock_path(uuid), time.monotonic() + wait_s
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        turn = _lock(path.with_suffix(".turn"), operation, deadline)
        try:
            descriptor = _lock(path, operation, deadline)
        finally:
            os.close(turn)
    except TimeoutError as error:
        holder = path.read_text(errors="replace").strip() if path.is_file() else ""
        raise Unavailable(
            f"GPU {uuid} is in use by another gemmlab process (process {holder or 'unknown'}, lock {path}) since more "
            f"than {wait_s:g} s. Wait for it to end or end it."
        ) from error
    _write_holder(descriptor)
    _held[uuid] = shared, descriptor


def _lock(path: Path, operation: int, deadline: float) -> int:
    """A descriptor of `path` on which `operation` of flock succeeded; TimeoutError after `deadline`."""
    descriptor = _open(path)
    try:
        while True:
            try:
                fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
                return descriptor
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if time.monotonic() >= deadline:
                raise TimeoutError
            time.sleep(_POLL_S)
    except BaseException:
        os.close(descriptor)
        raise


def _open(path: Path) -> int:
    # A file of another user in a sticky folder may not be opened with O_CREAT, but a lock needs no more than reading.
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, PermissionError) as error:
            problem = error
    raise Unavailable(f"lock file {path} can't be opened: {problem}")


def _write_holder(descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        # Opened for reading alone: the lock holds all the same, only the message to others stays vague.
        return
