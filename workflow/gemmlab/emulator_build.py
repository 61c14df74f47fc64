"""Builds the PTX emulator's shared library from workflow/emulator, once for each content of sources and flags."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gemmlab.errors import GemmlabError

SOURCES = Path(__file__).resolve().parents[1] / "emulator"
REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT_VARIABLE = "GEMMLAB_EMULATOR_DIR"
FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    # Results must be IEEE's to the last bit, so nothing is contracted; errno and traps, which nobody looks at, would
    # keep loops from being vectorised.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    # A register is read as whatever type the instruction says.
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
)


def build(output_dir: Path, *, target: str | None = None) -> Path:
    """Compile the emulator into `output_dir` unless this very library is there already, and return its path.

    Args:
        output_dir: made if missing. Callers at the same time wait for one another, and one of them builds.
        target: "x86-64-v3" or "portable"; by default what this machine's CPU can run.

    Raises:
        GemmlabError: there is no C++ compiler, or it failed.
    """
    target = target or default_target()
    output_dir.mkdir(parents=True, exist_ok=True)
    compiler = _compiler()
    flags = [*FLAGS, *(["-march=x86-64-v3"] if target == "x86-64-v3" else [])]
    library_path = output_dir / f"libptx_emulator-{target}-{_digest(compiler, flags)}.so"
    if library_path.exists():
        return library_path
    with _lock(output_dir / "build.lock"):
        if not library_path.exists():
            _compile(compiler, flags, library_path)
    return library_path


def library() -> Path:
    """Return the library for this machine, built if need be.

    It lies in results/emulator of the repository, or in the folder that GEMMLAB_EMULATOR_DIR names.

    Raises:
        GemmlabError: as `build`.
    """
    folder = os.environ.get(OUTPUT_VARIABLE)
    return build(Path(folder) if folder else REPOSITORY / "results" / "emulator")


def default_target() -> str:
    """Return "x86-64-v3" where this CPU has AVX2, FMA and F16C, else "portable"."""
    try:
        information = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "portable"
    for line in information.splitlines():
        if line.startswith("flags"):
            return "x86-64-v3" if {"avx2", "fma", "f16c", "bmi2"} <= set(line.split()) else "portable"
    return "portable"


def _compiler() -> str:
    names = [name for name in (os.environ.get("CXX"), "g++", "c++", "clang++") if name]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise GemmlabError(
        f"no C++ compiler: looked for {', '.join(names)} on PATH; install g++ (Debian, Ubuntu: apt install g++) "
        "or set CXX"
    )


def _source_files() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*") if path.suffix in {".cpp", ".h"})


def _digest(compiler: str, flags: list[str]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    digest = hashlib.sha256("\0".join([version, *flags]).encode())
    for path in _source_files():
        digest.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _compile(compiler: str, flags: list[str], library_path: Path) -> None:
    """Compile every source by itself, link them, and put the library in place in one step.

    All cores compile, whatever --cores says: nothing is measured yet, and what waits for the library is all the rest.
    """
    with tempfile.TemporaryDirectory(dir=library_path.parent, prefix="build-") as folder:

        def compile_one(source: Path) -> Path:
            target = Path(folder) / ("_".join(source.relative_to(SOURCES).parts) + ".o")
            _run([compiler, *flags, "-c", str(source), "-o", str(target)])
            return target

        sources = [path for path in _source_files() if path.suffix == ".cpp"]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = list(pool.map(compile_one, sources))
        linked = Path(folder) / library_path.name
        _run([compiler, "-shared", "-o", str(linked), *map(str, objects)])
        linked.replace(library_path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GemmlabError(f"building the emulator failed: {' '.join(command)}\n{done.stderr.strip()}")


def main() -> None:
    """Build the library and print its path."""
    parser = argparse.ArgumentParser(description="Build the PTX emulator's shared library.")
    parser.add_argument("--output-dir", type=Path, help="where to put it (default: results/emulator)")
    arguments = parser.parse_args()
    print(build(arguments.output_dir) if arguments.output_dir else library())


if __name__ == "__main__":
    main()
