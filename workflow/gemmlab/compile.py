"""Compile one variant: nvcc to PTX, ptxas to a cubin of the very same PTX, and a record of what it uses."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmlab import driver, ptx, status
from gemmlab.catalogue import Variant, architecture_number, load_catalogue
from gemmlab.compiler_flags import check_flags
from gemmlab.cubin import cubin_architecture
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import Launch
from gemmlab.files import read_json, repository_root, write_bytes, write_json
from gemmlab.occupancy import occupancy
from gemmlab.problem import Problem
from gemmlab.process import Completed, run_process
from gemmlab.ptxas import Resources, parse_resources, shared_memory_error
from gemmlab.sass import instruction_mix
from gemmlab.schema import validate
from gemmlab.sources import inputs_digest
from gemmlab.toolchain import (
    Nvcc,
    find_nvcc,
    find_nvdisasm,
    find_ptxas,
    supported_architectures,
    toolkit_binaries,
)

_TIMEOUT_S = 300
_EDGE = 4096
_NVCC_OPTIONS = ("-ptx", "-lineinfo", "-std=c++17")
_PTXAS_OPTIONS = ("-lineinfo", "-v")
# Variables that add options behind our back: an -arch in them would win over the one that the record names.
_FOREIGN_OPTIONS = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")

_COMPILER_ERROR = re.compile(
    r"^(?:.+?\(\d+\): .*\berror\b|.+?:\d+:(?:\d+:)? (?:fatal )?error:|nvcc (?:fatal|error)\s*:)"
)
_ASSEMBLER_ERROR = re.compile(
    r"^ptxas (?:\S+, line (?P<line>\d+); )?(?:error|fatal)\s*: (?P<message>.*)", re.MULTILINE
)
_NO_HOST_COMPILER = re.compile(
    r"(gcc|g\+\+|cc1plus|cl)\S*: (No such file|not found)|host compiler properties"
)


@dataclass(frozen=True)
class Build:
    """What compiling one variant gave: the record (schema `compile`) and the two files, empty unless status is ok."""

    record: dict[str, Any]
    ptx: bytes = b""
    cubin: bytes = b""


class _CompileError(Exception):
    """The variant can't be built; the text is the record's reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `gemmlab compile`."""
    parser.add_argument("--variant", required=True, help="a name from config/variants")
    parser.add_argument("--architecture", required=True, help="such as sm_90; the entry adds its suffix")
    parser.add_argument("--nvcc", default="auto", help="auto, wheel or the path of an nvcc")
    parser.add_argument("--ptx", required=True, type=Path)
    parser.add_argument("--cubin", required=True, type=Path)
    parser.add_argument("--record", required=True, type=Path)


def run(options: argparse.Namespace) -> None:
    """Compile `options.variant`; the record is written whatever came of it.

    Raises:
        GemmlabError: the variant, its flags, the architecture or nvcc are not what they should be.
    """
    catalogue = load_catalogue()
    if options.variant not in catalogue:
        raise GemmlabError(
            f"--variant {options.variant}: no such variant; the catalogue is config/variants/*.yaml."
        )
    variant = catalogue[options.variant]
    # First of all, so that no way out of here leaves a build of older sources behind.
    write_bytes(options.ptx, b"")
    write_bytes(options.cubin, b"")
    options.record.unlink(missing_ok=True)
    nvcc = find_nvcc(options.nvcc, driver_cuda=driver.cuda_version())
    build = compile_variant(variant, options.architecture, nvcc)
    settings = {"architecture": options.architecture, "nvcc": str(nvcc)}
    record = build.record | {"digest": inputs_digest("compile", variant, settings)}
    validate(record, "compile", str(options.record))
    write_bytes(options.ptx, build.ptx)
    write_bytes(options.cubin, build.cubin)
    write_json(options.record, record)


def read_record(path: Path) -> dict[str, Any]:
    """The record that `gemmlab compile` wrote, validated.

    Raises:
        GemmlabError: the file is missing or is no such record.
    """
    record = read_json(path)
    validate(record, "compile", str(path))
    return record


def compile_variant(
    variant: Variant,
    architecture: str,
    nvcc: Nvcc,
    *,
    root: Path | None = None,
    nvdisasm: Path | None = None,
) -> Build:
    """Build `variant` for `architecture`; touches no file but those of a temporary folder.

    Args:
        variant: an entry with a kernel source.
        architecture: a real architecture without suffix, such as sm_90.
        nvcc: the compiler; ptxas is taken from its toolkit.
        root: the repository, which the variant's source is relative to.
        nvdisasm: the disassembler; looked for if left out.

    Raises:
        GemmlabError: the variant has no source, a flag is refused, nvcc doesn't know the architecture, or there is no
            host compiler. A kernel that doesn't compile is a result (status failed), not an error.
    """
    root = (root or repository_root()).resolve()
    where = f"{variant.origin}, variant {variant.name}"
    if variant.source is None:
        raise GemmlabError(f"{where}: a {variant.kind} has no kernel source, so there is nothing to compile.")
    check_flags(variant.compiler_flags, f"{where}: compiler_flags")
    check_flags(variant.ptxas_flags, f"{where}: ptxas_flags", ptxas=True)
    check_architecture(architecture, nvcc)
    target = architecture + variant.architecture_suffix
    record: dict[str, Any] = {
        "variant": variant.name,
        "status": status.OK,
        "reason": None,
        "architecture": target,
        "nvcc": str(nvcc),
    }
    if reason := variant.architecture_unsupported(architecture):
        return Build(record | {"status": status.SKIPPED, "reason": reason})
    with tempfile.TemporaryDirectory(prefix="gemmlab-") as folder:
        job = _Job(variant, target, nvcc, root, Path(folder))
        try:
            return job.build(record, nvdisasm or find_nvdisasm(nvcc))
        except _CompileError as error:
            return Build(job.record(record) | {"status": status.FAILED, "reason": str(error)})


def check_architecture(architecture: str, nvcc: Nvcc) -> None:
    """Raise GemmlabError unless `nvcc` compiles for `architecture`; the message lists what it supports."""
    supported = supported_architectures(nvcc)
    if architecture not in supported:
        raise GemmlabError(
            f"architecture is {architecture!r}, which nvcc {nvcc.release[0]}.{nvcc.release[1]} doesn't compile for. "
            f"Supported: {', '.join(supported)}. Set architecture in config/config.yaml to one of these."
        )


class _Job:
    """One build in a temporary folder."""

    def __init__(self, variant: Variant, target: str, nvcc: Nvcc, root: Path, folder: Path) -> None:
        self.variant = variant
        self.target = target
        self.nvcc = nvcc
        self.root = root
        self.folder = folder
        self.ptx_path = folder / f"{variant.name}.ptx"
        self.cubin_path = folder / f"{variant.name}.cubin"
        self.log: list[str] = []
        self.commands: dict[str, str] = {}

    def build(self, record: dict[str, Any], nvdisasm: Path | None) -> Build:
        text = self._run_nvcc()
        self._check_entries(text)
        log, cubin = self._run_ptxas(text)
        self._check_architecture(text, cubin)
        self._check_names_no_folder(text, cubin)
        found = {
            "ptx_sha256": hashlib.sha256(text).hexdigest(),
            "cubin_sha256": hashlib.sha256(cubin).hexdigest(),
            "entries": self._entries(parse_resources(log), nvdisasm),
        }
        return Build(self.record(record) | found, text, cubin)

    def record(self, record: dict[str, Any]) -> dict[str, Any]:
        log = self._without_folders("\n".join(filter(None, self.log)))
        return record | self.commands | {"log": log or None}

    def _run_nvcc(self) -> bytes:
        macros = [f"-D{name}={value}" for name, value in self.variant.macros.items()]
        options = [
            *_NVCC_OPTIONS,
            f"-arch={self.target.replace('sm_', 'compute_')}",
            *macros,
            *self.variant.compiler_flags,
            str(self.variant.source),
        ]
        self.commands["nvcc_command"] = " ".join(["nvcc", *options, "-o", self.ptx_path.name])
        environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN_OPTIONS}
        # The preprocessor believes PWD, and `.file` lines are made from it; temporary files stay in our folder.
        environment |= {"PWD": str(self.root), "TMPDIR": str(self.folder), "LC_ALL": "C"}
        completed = self._run([self.nvcc.path, *options, "-o", self.ptx_path], self.root, environment)
        text = self.ptx_path.read_bytes() if self.ptx_path.is_file() else b""
        if completed.returncode != 0 or not text:
            raise _CompileError(self._compiler_reason(completed, text))
        return ptx.relative_file_lines(text, self.root)

    def _run_ptxas(self, text: bytes) -> tuple[str, bytes]:
        self.ptx_path.write_bytes(text)
        options = [f"-arch={self.target}", *_PTXAS_OPTIONS, *self.variant.ptxas_flags]
        options += [self.ptx_path.name, "-o", self.cubin_path.name]
        self.commands["ptxas_command"] = " ".join(["ptxas", *options])
        # Run where the sources are not: ptxas would write their times into the cubin, which then changed at a touch.
        environment = {**os.environ, "LC_ALL": "C"}
        completed = self._run([find_ptxas(self.nvcc), *options], self.folder, environment)
        if completed.returncode != 0 or not self.cubin_path.is_file():
            raise _CompileError(self._assembler_reason(completed, text))
        return completed.output, self.cubin_path.read_bytes()

    def _run(self, command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> Completed:
        completed = run_process(command, timeout_s=_TIMEOUT_S, folder=folder, environment=environment)
        self.log.append(completed.output)
        if completed.timed_out:
            raise _CompileError(f"{Path(command[0]).name} didn't end within {_TIMEOUT_S} s")
        return completed

    def _compiler_reason(self, completed: Completed, text: bytes) -> str:
        output = self._without_folders(completed.output)
        if _NO_HOST_COMPILER.search(output):
            raise GemmlabError(
                f"nvcc finds no host compiler ({_first_error(output)}). Cure: apt-get install g++, or put g++ on PATH."
            )
        if _ASSEMBLER_ERROR.search(output):
            # nvcc has ptxas look over inline assembly; the lines that it names are those of the file it leaves.
            return self._assembler_reason(completed, ptx.relative_file_lines(text, self.root))
        return _first_error(output) or f"nvcc ended with status {completed.returncode} and said nothing"

    def _assembler_reason(self, completed: Completed, text: bytes) -> str:
        if reason := shared_memory_error(completed.output):
            return f"{self.variant.source}: {reason} (more has to be dynamic: shared_bytes)"
        error = _ASSEMBLER_ERROR.search(completed.output)
        if not error:
            lines = self._without_folders(completed.output).splitlines()
            return f"ptxas ended with status {completed.returncode}: {lines[0] if lines else 'no output'}"
        location = ptx.source_location(text, int(error["line"])) if error["line"] else None
        return f"{location or self.variant.source}: ptxas error: {error['message']}"

    def _check_entries(self, text: bytes) -> None:
        found = ptx.entry_names(text)
        for launch in self.variant.launches:
            if launch.entry not in found:
                reason = f"kernel {launch.entry} not found in {self.variant.source}"
                reason += f"; found: {', '.join(found) or 'none'}"
                if any(name.startswith("_Z") for name in found):
                    reason += ' (a name that begins with _Z lacks extern "C")'
                raise _CompileError(reason)

    def _check_architecture(self, text: bytes, cubin: bytes) -> None:
        # The suffix stands in the PTX only, which ptxas refuses to assemble for an architecture without it.
        if ptx.target(text) != self.target:
            raise _CompileError(f"the PTX is for {ptx.target(text)}, asked for was {self.target}")
        built_for = cubin_architecture(cubin)
        if architecture_number(built_for) != architecture_number(self.target):
            raise _CompileError(f"the cubin is for {built_for}, asked for was {self.target}")

    def _check_names_no_folder(self, text: bytes, cubin: bytes) -> None:
        for folder in (self.root, self.folder, toolkit_binaries(self.nvcc).parent):
            if os.fsencode(folder) in text or os.fsencode(folder) in cubin:
                raise _CompileError(
                    f"{self.variant.source}: the build holds this machine's path of the folder {folder.name}; "
                    "an assert or __FILE__ in an included header?"
                )

    def _entries(self, resources: dict[str, Resources], nvdisasm: Path | None) -> dict[str, dict[str, Any]]:
        mixes, missing = self._instruction_mixes(nvdisasm)
        problem = Problem.packed(_EDGE, _EDGE, _EDGE, transpose_b=self.variant.transpose_b)
        entries: dict[str, dict[str, Any]] = {}
        for launch in self.variant.plan(problem):
            if launch.entry in entries:
                continue
            used = resources.get(launch.entry, Resources())
            mix = mixes.get(launch.entry)
            entries[launch.entry] = {
                **asdict(used),
                **self._fit(launch, used),
                "sass": mix,
                "sass_reason": None if mix else missing or f"nvdisasm lists no function {launch.entry}",
            }
        return entries

    def _instruction_mixes(self, nvdisasm: Path | None) -> tuple[dict[str, dict[str, int]], str | None]:
        if nvdisasm is None:
            return {}, "nvdisasm is missing (pip install nvidia-cuda-nvdisasm)"
        try:
            return instruction_mix(self.cubin_path, nvdisasm), None
        except GemmlabError as error:
            return {}, str(error)

    def _fit(self, launch: Launch, used: Resources) -> dict[str, Any]:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        fields: dict[str, Any] = {"shared_dynamic_bytes": launch.shared_bytes, "threads": threads}
        if used.registers is None:
            return fields
        # ptxas leaves out a size of zero: totals without smem mean that there is none.
        static = used.shared_static_bytes or 0
        fields["shared_static_bytes"] = static
        fit = occupancy(
            architecture_number(self.target),
            threads=threads,
            registers=used.registers,
            shared_bytes=static + launch.shared_bytes,
            barriers=used.barriers or 0,
        )
        if fit:
            fields |= {
                "occupancy": round(fit.fraction, 6),
                "blocks_per_sm": fit.blocks_per_sm,
                "occupancy_limit": fit.limit,
            }
        return fields

    def _without_folders(self, text: str) -> str:
        toolkit = toolkit_binaries(self.nvcc).parent
        for folder, name in ((self.folder, ""), (self.root, ""), (toolkit, "toolkit/")):
            text = text.replace(f"{folder}/", name)
        return text


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if _COMPILER_ERROR.match(line)), lines[-1] if lines else "")
