"""The catalogue: config/variants/*.yaml, the single list of what is compiled, checked, timed and compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmlab.compiler_flags import check_flags
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import Argument, Dim3, Launch, Pointer, Scalar, TensorMap
from gemmlab.expression import evaluate
from gemmlab.files import read_yaml, repository_root
from gemmlab.problem import Problem
from gemmlab.schema import validate

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
STAGES = (
    "environment",
    "compile",
    "check",
    "count",
    "bench",
    "profile",
    "probe",
    "sanitize",
    "claims",
    "publish",
    "gate",
)
# Words that are, or will be, targets and commands of their own.
RESERVED = frozenset(
    {*STAGES, "all", "doctor", "emulator", "gate_all", "gate_variant", "new", "refusals"}
    | {"static_evidence", "tune", "unavailable"}
    # YAML and pandas read these as no name at all.
    | {"null", "true", "false", "na", "nan", "none"}
)

GEMM_ARGUMENTS: dict[str, Any] = {
    "m": "int32",
    "n": "int32",
    "k": "int32",
    "alpha": "float32",
    "a": "pointer",
    "lda": "int32",
    "b": "pointer",
    "ldb": "int32",
    "beta": "float32",
    "c": "pointer",
    "ldc": "int32",
}
BASELINES = {
    "fp32": "cublas_fp32",
    "tf32": "cublas_tf32",
    "fp16": "cublas_fp16",
    "bf16": "cublas_bf16",
    "3xtf32": "cublas_fp32",
    "bf16x6": "cublas_fp32",
    "bf16x9": "cublas_fp32",
    "fp16x3": "cublas_fp32",
}
INTEGER_NAMES = frozenset({"m", "n", "k", "lda", "ldb", "ldc", "ldd"})
_DEFAULT_SM_COUNT = 132


@dataclass(frozen=True)
class LaunchTemplate:
    """A launch whose block, grid and so on are still formulas."""

    entry: str
    block: tuple[int | str, ...]
    grid: tuple[int | str, ...]
    cluster: tuple[int | str, ...]
    shared_bytes: int | str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Variant:
    """One entry of the catalogue; workflow/schemas/variant.schema.json says what each field means."""

    name: str
    origin: str
    idea: str
    kind: str = "kernel"
    source: str | None = None
    macros: Mapping[str, int | str] = field(default_factory=dict)
    compiler_flags: tuple[str, ...] = ()
    ptxas_flags: tuple[str, ...] = ()
    launches: tuple[LaunchTemplate, ...] = ()
    workspace: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    tile: tuple[int, int, int] = (16, 16, 16)
    input_type: str = "float32"
    output_type: str = "float32"
    arithmetic: str = "fp32"
    transpose_b: bool = False
    separate_output: bool = False
    deterministic: bool = True
    index_bits: int = 32
    library: str | None = None
    baseline: str | None = None
    candidates: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    least_architecture: str | None = None
    greatest_architecture: str | None = None
    architecture_suffix: str = ""
    compared_with: str | None = None
    articles: tuple[str, ...] = ()
    stands_for: str | None = None
    check_fmas: int = 4_000_000
    count_shapes: tuple[tuple[int, int, int], ...] = ()
    bench_shapes: tuple[tuple[int, int, int], ...] = ()
    entry_text: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def compiled(self) -> bool:
        """Whether the variant has a kernel source of its own."""
        return self.source is not None

    def unsupported(self, problem: Problem) -> str | None:
        """Why the variant can't compute `problem`, or None if it can; found before any memory is taken."""
        names = self._names(problem, _DEFAULT_SM_COUNT)
        for constraint in self.constraints:
            if not evaluate(constraint, names):
                return f"needs {constraint}, got {problem}"
        if self.index_bits == 32:
            used = ("a", "b", "c", "d") if self.separate_output else ("a", "b", "c")
            for matrix, elements in problem.elements().items():
                if matrix in used and elements > 2**31 - 1:
                    return (
                        f"matrix {matrix.upper()} spans {elements} elements and the kernel indexes with 32 bits "
                        f"(at most {2**31 - 1})"
                    )
        return None

    def architecture_unsupported(self, architecture: str) -> str | None:
        """Why the variant can't be built for `architecture` (such as sm_90), or None."""
        number = architecture_number(architecture)
        if self.least_architecture and number < architecture_number(self.least_architecture):
            return f"needs {self.least_architecture} or later, this is {architecture}"
        if self.greatest_architecture and number > architecture_number(self.greatest_architecture):
            return f"needs {self.greatest_architecture} or earlier, this is {architecture}"
        return None

    def plan(self, problem: Problem, sm_count: int = _DEFAULT_SM_COUNT) -> list[Launch]:
        """The launches that compute `problem`, with every formula evaluated.

        Raises:
            GemmlabError: a formula can't be evaluated or an argument has no value.
        """
        names = self._names(problem, sm_count)
        return [self._launch(template, problem, names) for template in self.launches]

    def workspace_elements(
        self, problem: Problem, sm_count: int = _DEFAULT_SM_COUNT
    ) -> dict[str, tuple[int, str]]:
        """Elements and element type of each workspace buffer for `problem`."""
        names = self._names(problem, sm_count)
        return {
            name: (evaluate(buffer["elements"], names), buffer.get("type", "float32"))
            for name, buffer in self.workspace.items()
        }

    def _names(self, problem: Problem, sm_count: int) -> dict[str, int]:
        macros = {name: value for name, value in self.macros.items() if isinstance(value, int)}
        return {**macros, **problem.names(), "sm_count": sm_count}

    def _launch(self, template: LaunchTemplate, problem: Problem, names: Mapping[str, int]) -> Launch:
        return Launch(
            entry=template.entry,
            grid=_dim3(template.grid, names),
            block=_dim3(template.block, names),
            cluster=_dim3(template.cluster, names),
            shared_bytes=evaluate(template.shared_bytes, names),
            arguments=tuple(
                self._argument(name, kind, problem, names) for name, kind in template.arguments.items()
            ),
        )

    def _argument(self, name: str, kind: Any, problem: Problem, names: Mapping[str, int]) -> Argument:
        if kind == "pointer":
            return Pointer(name)
        if kind == "float32":
            return Scalar("float32", {"alpha": problem.alpha, "beta": problem.beta}[name])
        if isinstance(kind, str):
            return Scalar(kind, names[name])
        if "tensor_map" in kind:
            rows, columns, pitch = _matrix(kind["tensor_map"], problem)
            box_rows, box_columns = (evaluate(side, names) for side in kind["box"])
            return TensorMap(
                buffer=kind["tensor_map"],
                rows=evaluate(kind.get("rows", rows), names),
                columns=evaluate(kind.get("columns", columns), names),
                pitch=evaluate(kind.get("pitch", pitch), names),
                box_rows=box_rows,
                box_columns=box_columns,
                swizzle=kind.get("swizzle", 0),
            )
        return Scalar(kind["type"], evaluate(kind["value"], names))


def _matrix(name: str, problem: Problem) -> tuple[int, int, int]:
    if name == "a":
        return problem.m, problem.k, problem.lda
    if name == "b":
        return *problem.b_shape, problem.ldb
    return problem.m, problem.n, problem.ldc if name == "c" else problem.ldd


def _dim3(formulas: tuple[int | str, ...], names: Mapping[str, int]) -> Dim3:
    values = [evaluate(formula, names) for formula in formulas] + [1, 1, 1]
    return values[0], values[1], values[2]


def architecture_number(architecture: str) -> int:
    """The number in an architecture's name: 90 for sm_90 and sm_90a."""
    match = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    if not match:
        raise GemmlabError(
            f"architecture {architecture!r} is not of the form sm_90; nvcc --list-gpu-code lists them."
        )
    return int(match.group(1))


def load_catalogue(folder: Path | None = None, root: Path | None = None) -> dict[str, Variant]:
    """All variants by name, in the order of the files' names and of the entries in each.

    Args:
        folder: where the YAML files lie; config/variants of the repository if left out.
        root: the repository, in which sources are looked up.

    Raises:
        GemmlabError: a fault in an entry, with file, variant, key, value and what was expected.
    """
    root = root or repository_root()
    folder = folder or root / "config" / "variants"
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise GemmlabError(f"{folder}: no catalogue here; expected YAML files of variants.")
    catalogue: dict[str, Variant] = {}
    for file in files:
        entries = read_yaml(file) or {}
        if not isinstance(entries, dict):
            raise GemmlabError(f"{file}: expected variants by name, found {type(entries).__name__}.")
        for name, entry in entries.items():
            where = f"{file.relative_to(root) if file.is_relative_to(root) else file}, variant {name}"
            refuse_bad_name(name, where, root)
            if name in catalogue:
                raise GemmlabError(f"{where}: a variant of this name stands in {catalogue[name].origin} too.")
            catalogue[name] = _read_entry(name, entry, where, file.name, root)
    for variant in catalogue.values():
        _check_references(variant, catalogue)
    return catalogue


def select(catalogue: Mapping[str, Variant], names: Iterable[str]) -> dict[str, Variant]:
    """The variants called `names` with the baselines and partners that they need; all if there are no names.

    Raises:
        GemmlabError: a name is not in the catalogue.
    """
    waiting = list(names)
    if not waiting:
        return dict(catalogue)
    wanted: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in catalogue:
            known = ", ".join(catalogue)
            raise GemmlabError(
                f"configuration: variants names {name}, which is not in the catalogue: {known}."
            )
        if name not in wanted:
            wanted.add(name)
            variant = catalogue[name]
            waiting += [partner for partner in (variant.baseline, *variant.candidates) if partner]
    return {name: variant for name, variant in catalogue.items() if name in wanted}


def refuse_bad_name(name: Any, where: str, root: Path) -> None:
    """Raise GemmlabError, beginning with `where`, if `name` can't be a variant's and a target's name."""
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise GemmlabError(
            f"{where}: the name {name!r} can't be a target; expected a letter, then letters, digits and _."
        )
    if name.lower() in RESERVED:
        raise GemmlabError(
            f"{where}: the name {name} is a stage, rule or command of gemmlab; choose another."
        )
    if (root / name).exists():
        raise GemmlabError(
            f"{where}: the name {name} is also a file or folder of the repository, so Snakemake would take the "
            "target for that; choose another."
        )


def _read_entry(name: str, entry: Any, where: str, origin: str, root: Path) -> Variant:
    validate(entry, "variant", where)
    kind = entry.get("kind", "kernel")
    compiled = kind in ("kernel", "probe", "broken")
    if compiled and "source" not in entry:
        raise GemmlabError(f"{where}: lacks the key source; a {kind} has a .cu file under kernels/.")
    if not compiled and "source" in entry:
        raise GemmlabError(f"{where}: source is {entry['source']}, but a {kind} has no kernel of its own.")
    if compiled and not (root / entry["source"]).is_file():
        raise GemmlabError(f"{where}: source {entry['source']} is no file of the repository.")
    if kind == "broken" and "stands_for" not in entry:
        raise GemmlabError(
            f"{where}: lacks the key stands_for; a broken kernel says which report it stands for."
        )
    if kind == "probe" and not set(entry.get("results", [None])) <= set(entry.get("workspace", {})):
        raise GemmlabError(
            f"{where}: results is {entry.get('results')}; a probe names the buffers of its workspace that hold what it "
            "measured."
        )
    if kind == "baseline" and "library" not in entry:
        raise GemmlabError(
            f"{where}: lacks the key library (cublas or cublaslt); a baseline is a library's call."
        )
    if kind == "dispatch" and not entry.get("candidates"):
        raise GemmlabError(f"{where}: lacks the key candidates; a dispatch chooses among variants.")
    check_flags(entry.get("compiler_flags", ()), f"{where}: compiler_flags")
    check_flags(entry.get("ptxas_flags", ()), f"{where}: ptxas_flags", ptxas=True)
    plain = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in entry.items()
        if key not in ("entry", "block", "grid", "cluster", "shared_bytes", "arguments", "launches", "tile")
    }
    for key in ("count_shapes", "bench_shapes"):
        plain[key] = tuple(tuple(shape) for shape in entry.get(key, ()))
    macros = {macro: value for macro, value in entry.get("macros", {}).items() if isinstance(value, int)}
    arithmetic = entry.get("arithmetic", "fp32")
    if kind in ("kernel", "dispatch"):
        plain.setdefault("baseline", BASELINES[arithmetic])
    try:
        variant = Variant(
            name=name,
            origin=origin,
            entry_text=entry,
            launches=tuple(_read_launches(entry, where)) if compiled else (),
            tile=tuple(evaluate(side, macros) for side in entry.get("tile", (16, 16, 16))),
            **plain,
        )
        sample = Problem.packed(64, 64, 64, transpose_b=variant.transpose_b)
        _check_dimensions(variant.plan(sample))
        variant.unsupported(sample)
        variant.workspace_elements(sample)
    except GemmlabError as error:
        raise GemmlabError(f"{where}: {error}") from error
    return variant


def _check_dimensions(launches: Iterable[Launch]) -> None:
    for launch in launches:
        for key in ("block", "grid", "cluster"):
            if min(getattr(launch, key)) < 1:
                raise GemmlabError(
                    f"{key} of {launch.entry} is {getattr(launch, key)} at 64^3, expected 1 or more."
                )


def _read_launches(entry: Mapping[str, Any], where: str) -> Iterable[LaunchTemplate]:
    shared = {
        key: entry[key]
        for key in ("entry", "block", "grid", "cluster", "shared_bytes", "arguments")
        if key in entry
    }
    buffers = {"a", "b", "c", *entry.get("workspace", {})} | (
        {"d"} if entry.get("separate_output") else set()
    )
    for number, own in enumerate(entry.get("launches", [{}]), start=1):
        launch = {"entry": "gemm", "cluster": (1,), "shared_bytes": 0, **shared, **own}
        for key in ("block", "grid"):
            if key not in launch:
                raise GemmlabError(f"{where}: launch {number} lacks the key {key}.")
        arguments = launch.get("arguments") or _default_arguments(entry)
        for name, kind in arguments.items():
            _check_argument(name, kind, buffers, f"{where}: argument {name}")
        yield LaunchTemplate(
            entry=launch["entry"],
            block=tuple(launch["block"]),
            grid=tuple(launch["grid"]),
            cluster=tuple(launch["cluster"]),
            shared_bytes=launch["shared_bytes"],
            arguments=arguments,
        )


def _default_arguments(entry: Mapping[str, Any]) -> dict[str, Any]:
    if entry.get("separate_output"):
        return GEMM_ARGUMENTS | {"d": "pointer", "ldd": "int32"}
    return GEMM_ARGUMENTS


def _check_argument(name: str, kind: Any, buffers: set[str], where: str) -> None:
    known = ", ".join(sorted(buffers))
    if kind == "pointer" and name not in buffers:
        raise GemmlabError(f"{where} is a pointer to no buffer; known are {known}.")
    if kind == "float32" and name not in ("alpha", "beta"):
        raise GemmlabError(f"{where} is float32; only alpha and beta are.")
    if kind in ("int32", "int64") and name not in INTEGER_NAMES:
        raise GemmlabError(
            f"{where} is an integer without a value; known are {', '.join(sorted(INTEGER_NAMES))}. "
            "Give others as {type: int32, value: formula}."
        )
    if isinstance(kind, dict) and "tensor_map" in kind and kind["tensor_map"] not in buffers:
        raise GemmlabError(f"{where} maps the unknown buffer {kind['tensor_map']}; known are {known}.")


def _check_references(variant: Variant, catalogue: Mapping[str, Variant]) -> None:
    where = f"{variant.origin}, variant {variant.name}"
    named = [("compared_with", variant.compared_with), *(("candidates", name) for name in variant.candidates)]
    for key, name in named:
        if name is not None and name not in catalogue:
            raise GemmlabError(f"{where}: {key} names {name}, which is not in the catalogue.")
        if name == variant.name:
            raise GemmlabError(f"{where}: {key} names the variant itself; name another.")
        if key == "candidates" and catalogue[name].kind == "dispatch":
            raise GemmlabError(
                f"{where}: {key} names {name}, which is a dispatch too; name what that one chooses from."
            )
    if variant.baseline is not None:
        other = catalogue.get(variant.baseline)
        if other is None or other.kind != "baseline":
            known = (
                ", ".join(entry.name for entry in catalogue.values() if entry.kind == "baseline") or "none"
            )
            raise GemmlabError(
                f"{where}: baseline is {variant.baseline}; baselines of the catalogue: {known}."
            )


_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def source_files(variant: Variant, root: Path | None = None) -> list[str]:
    """The variant's .cu file and every header that it includes by a quoted name, relative to the repository.

    An included file that doesn't exist is left out: nvcc names it, and only that variant fails.
    """
    if variant.source is None:
        return []
    root = root or repository_root()
    found: list[str] = []
    waiting = [variant.source]
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        text = (root / name).read_text()
        for included in _INCLUDE.findall(text):
            path = ((root / name).parent / included).resolve()
            if path.is_file():
                waiting.append(str(path.relative_to(root.resolve())))
    return found
