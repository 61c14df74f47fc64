"""Whether a run is going on in a working folder: `snakemake --unlock` beside one would take away the lock under it."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from gemmlab.errors import GemmlabError

LOCK = Path(".snakemake") / "gemmlab.lock"


def announce(folder: Path, *, unlocking: bool) -> IO[str]:
    """Say by a lock on a file of `folder` that a run is going on, for as long as the returned file is open.

    The kernel lets go of it whatever ends the process, so that nothing has to be repaired after a killed run.

    Args:
        folder: where Snakemake works.
        unlocking: whether this process is about to remove Snakemake's own lock.

    Raises:
        GemmlabError: `unlocking`, but another process runs here.
    """
    path = folder / LOCK
    path.parent.mkdir(exist_ok=True)
    file = path.open("a")
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if unlocking else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        if not unlocking:
            raise GemmlabError(f"{folder}: is being unlocked just now. Try again.") from error
        raise GemmlabError(
            f"{folder}: a run is going on here, so its lock stays. Wait for it, or end it, before `make resume`."
        ) from error
    return file
