"""One process holds one GPU: a lock file by the GPU's uuid, besides Snakemake's `gpu` resource."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from pathlib import Path

from gemmlab.executors.base import Unavailable

WAIT_S = 300.0
_POLL_S = 0.1
# Locks live as long as the process: whoever asks again in the same process has the GPU already.
_held: dict[str, int] = {}


def lock_path(uuid: str) -> Path:
    """The lock file of the GPU `uuid`, in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"gemmlab-{uuid}.lock"


def hold_gpu(uuid: str, wait_s: float = WAIT_S) -> None:
    """Wait until no other gemmlab process uses the GPU and keep it until this process ends.

    Args:
        uuid: the GPU's uuid.
        wait_s: how long to wait, seconds.

    Raises:
        Unavailable: another process kept the GPU all the time; the message names it and the file.
    """
    if uuid in _held:
        return
    path = lock_path(uuid)
    descriptor = _open(path)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(descriptor)
                raise
        if time.monotonic() >= deadline:
            holder = path.read_text(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise Unavailable(
                f"GPU {uuid} is in use by another gemmlab process (process {holder}, lock {path}) since more than "
                f"{wait_s:g} s. Wait for it to end or end it."
            )
        time.sleep(_POLL_S)
    _write_holder(descriptor)
    _held[uuid] = descriptor


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
