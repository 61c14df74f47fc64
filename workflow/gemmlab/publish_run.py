"""`gemmlab publish-run`: copies a run on a GPU into results/published/<gpu>, where it is committed.

Only what is listed here is copied: the tables, the environment's record and a few figures, drawn anew from the
merged tables. A run whose rows don't come from the present tree, or whose text could name a machine or its owner, is
refused as a whole and nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmlab import figures, status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root, sha256_file, write_bytes, write_json
from gemmlab.schema import read_table, validate, write_table
from gemmlab.sources import inputs_digest
from gemmlab.tables import Row, Shape, commit_text, joint_digest, read_environment, read_rows, sweep_fault
from gemmlab.tune import SETTINGS, load_space
from gemmlab.tune_figure import sweep_drawing

# The tables that are published and the columns that tell their rows apart.
KEYS: dict[str, tuple[str, ...]] = {
    "summary": ("variant",),
    "timings": ("variant", "m", "n", "k", "cache"),
    "checks": ("variant", "executor"),
    "broken": ("variant", "executor"),
    "counters": ("variant", "m", "n", "k", "counter"),
    "claims": ("claim",),
    "contradictions": ("contradiction",),
    "story": ("variant", "source"),
    "article_a": ("step",),
    "article_b": ("m",),
    "article_c": ("variant", "m", "n", "k"),
    "tune": ("variant", "m", "n", "k", "BM", "BN", "BK", "TM", "TN"),
    "static": ("variant", "architecture", "entry"),
}
# Asked for by name, so that a run may lack them: a new one replaces the recorded one as a whole, else that one stays.
WHOLE_TABLES = ("tune", "static")
_FOLDERS = {"tune": "tune"}
# What the stage claims writes: worked out from the other tables, so a row has no digest that the tree could repeat.
_WORKED_OUT = ("claims", "contradictions", "story", "article_a", "article_b", "article_c")
OPTIONAL_TABLES = (*_WORKED_OUT, *WHOLE_TABLES)
# Every run has each of their rows: what a new run lacks was taken out of config/claims.yaml.
_COMPLETE_TABLES = ("claims", "contradictions", "article_a", "article_b", "article_c")
# The folders of a recorded run, which hold what its manifest lists and nothing else.
_KINDS = ("tables", "environments", "figures")
RECORDED_FIGURES = ("ladder.svg", "speed_by_size.svg", "tune.svg")
# What a row must hold to count as measured; of other tables, a row that ran.
_MEASURED = {"summary": "time_ms", "timings": "time_ms_median", "counters": "ncu"}
_LISTED = 10
_PRIVATE = (
    ("an absolute path", re.compile(r"(?:^|[\s\"'=(,;:<])(~?(?:/[\w.+@-]+){2,})")),
    (
        "a host name",
        re.compile(r"\b[\w-]+\.(?:local|localdomain|internal|intranet|lan|corp|cluster)\b", re.IGNORECASE),
    ),
    ("a private address", re.compile(r"\b(?:192\.168|10\.\d{1,3})\.\d{1,3}\.\d{1,3}\b")),
    ("a hardware address", re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)),
    ("a serial number", re.compile(r"\bserial\b\W{0,3}(?:number|no)?\W{0,4}\w*\d{5,}\w*", re.IGNORECASE)),
    ("a mail address", re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")),
)

# The digest that a row of a table has if it comes from the present tree; None where a row has no digest of its own.
PresentDigest = Callable[[str, Row], str | None]


def publish_run(
    results: Path,
    published: Path,
    catalogue: Mapping[str, Variant],
    present_digest: PresentDigest,
    private_words: Iterable[str] = (),
    swept_sizes: Iterable[int] = (),
) -> dict[str, Any]:
    """Merge the run in `results` into `published`/<gpu> and write its manifest, which is returned.

    Args:
        results: results/<gpu>, with tables that publish wrote.
        published: results/published.
        catalogue: the present variants; recorded rows of others are dropped.
        present_digest: see `tree_digests`.
        private_words: words that must not be published, such as this machine's name.
        swept_sizes: edges of the problems that a sweep must hold.

    Raises:
        GemmlabError: the run has no GPU or no time, a row isn't of the present tree or doesn't follow its schema, the
            sweep is incomplete or of another GPU, or something private stands in a text.
    """
    environment = read_environment(results)
    if environment is None or not environment["gpus"]:
        raise GemmlabError(f"{results}: this run had no GPU, and only runs with one are recorded.")
    paths = {name: results / _FOLDERS.get(name, "tables") / f"{name}.csv" for name in KEYS}
    new = {name: read_rows(path, name) for name, path in paths.items() if path.is_file()}
    missing = [name for name in KEYS if name not in new and name not in OPTIONAL_TABLES]
    if missing:
        raise GemmlabError(
            f"{results}/tables: no {', '.join(missing)}.csv. `snakemake --cores all` writes it."
        )
    _refuse_stale(new, present_digest, results)
    if new.get("tune"):
        _refuse_sweep(new["tune"], swept_sizes, environment, paths["tune"])
    folder = published / results.name
    merged = {}
    for name in WHOLE_TABLES:
        own = [row | {"environment": environment["id"]} for row in new.get(name) or []]
        rows = own or read_rows(folder / "tables" / f"{name}.csv", name)
        if rows:
            merged[name] = rows
    for name, rows in new.items():
        if name in WHOLE_TABLES:
            continue
        old = [
            row
            for row in read_rows(folder / "tables" / f"{name}.csv", name)
            if row.get("variant") in (None, *catalogue)
        ]
        if name in _COMPLETE_TABLES:
            keys = {_key(name, row) for row in rows}
            old = [row for row in old if _key(name, row) in keys]
        present = [row for row in old if present_digest(name, row) in (None, row["digest"])]
        merged[name] = merge(name, old, rows, present)
        if name not in OPTIONAL_TABLES:
            merged[name].sort(key=lambda row: list(catalogue).index(row["variant"]))
    timed = [row for row in merged["timings"] if row["time_ms_median"] is not None]
    if not timed:
        raise GemmlabError(f"{results}/tables/timings.csv: no time to record; the column reason says why.")
    newest = max(timed, key=lambda row: row["date"] or "")
    manifest = {
        "slug": results.name,
        "gpu": environment["gpus"][0]["name"],
        "driver": newest["driver"] or (environment["driver"] or {}).get("version"),
        "date": newest["date"] or environment["date"],
        "commit": commit_text(environment),
        "environments": sorted(
            {row["environment"] for rows in merged.values() for row in rows if row["environment"]}
        ),
        "files": [],
    }
    _refuse_private(
        [("tables", new), ("environment", environment), ("manifest", manifest)], private_words, results
    )
    _write(folder, merged, environment, manifest, catalogue)
    return manifest


def merge(table: str, old: Sequence[Row], new: Sequence[Row], present: Sequence[Row]) -> list[Row]:
    """The rows of `new`, and those of `old` that `new` has nothing better for.

    A row without a measurement (unavailable, or ok but without a time) never replaces a measured one of the same key.
    Of a variant that `new` measured, only those rows of `old` stay that are among `present`: they come from the
    sources that `new` comes from. Of a variant that failed or was skipped as a whole none stays.
    """
    measured_old = {_key(table, row): row for row in old if _measured(table, row)}
    variants_old = {row.get("variant") for row in measured_old.values()}
    variants_new = {row.get("variant") for row in new if _measured(table, row)}
    ended = {
        row["variant"]
        for row in new
        if _for_all_shapes(row) and row["status"] in (status.FAILED, status.SKIPPED)
    }
    kept = {}
    for row in new:
        lacking = row["status"] == status.UNAVAILABLE or (
            row["status"] == status.OK and not _measured(table, row)
        )
        replaces = _key(table, row) in measured_old or (
            _for_all_shapes(row) and row["variant"] in variants_old
        )
        if not (lacking and replaces):
            kept[_key(table, row)] = row
    for key, row in measured_old.items():
        variant = row.get("variant")
        if variant not in ended and (row in present or variant not in variants_new):
            kept.setdefault(key, row)
    return list(kept.values())


def _for_all_shapes(row: Row) -> bool:
    return "m" in row and row["m"] is None


def tree_digests(config: Mapping[str, Any], catalogue: Mapping[str, Variant]) -> PresentDigest:
    """The digests of the present tree under `config`, by the settings that the rules hand to each stage."""
    known: dict[tuple, str] = {}
    space = load_space(repository_root() / SETTINGS)

    def stage_digest(stage: str, variant: Variant, settings: Any, emulator: bool = False) -> str:
        key = (stage, variant.name, repr(settings), emulator)
        if key not in known:
            known[key] = inputs_digest(stage, variant, settings, emulator=emulator)
        return known[key]

    def section(*names: str) -> str:
        chosen = {
            name: config[name] for name in ("preset", "seed", "headline_shape", *names) if name in config
        }
        return json.dumps(chosen, sort_keys=True)

    def present_digest(table: str, row: Row) -> str | None:
        if table in ("summary", *_WORKED_OUT):
            return None
        variant = catalogue.get(row.get("variant") or "")
        if variant is None:
            return ""  # no row of this tree
        if table == "tune":
            return stage_digest("tune", variant, [repr(space), config["seed"]])
        if table == "static":
            return stage_digest("static_evidence", variant, [row["architecture"]])
        if table in ("checks", "broken"):
            settings = {key: config["check"][key] for key in ("shapes", "repeated_shapes")}
            settings["seed"] = config["seed"]
            return stage_digest("check", variant, settings, emulator=row["executor"] == "emulator")
        if table == "timings":
            baseline = catalogue[variant.baseline] if variant.baseline else None
            settings = [section("bench"), repr(baseline.entry_text) if baseline else None]
            return stage_digest("bench", variant, settings)
        shapes = [tuple(shape) for shape in variant.count_shapes or config["count"]["shapes"]]
        counted = stage_digest("count", variant, shapes, emulator=True) if variant.compiled else None
        profiled = stage_digest("profile", variant, json.loads(section("profile", "count")))
        if row["ncu"] is None:
            # A profile that gave nothing has no digest.
            return counted if row["digest"] == counted else joint_digest([counted, profiled])
        return joint_digest([counted, profiled])

    return present_digest


def _key(table: str, row: Row) -> tuple:
    return tuple(row.get(column) for column in KEYS[table])


def _measured(table: str, row: Row) -> bool:
    if table in _MEASURED:
        return row[_MEASURED[table]] is not None
    return row["status"] in (status.OK, status.FAILED)


def _refuse_stale(tables: Mapping[str, Sequence[Row]], present_digest: PresentDigest, results: Path) -> None:
    stale: list[str] = []
    for table, rows in tables.items():
        for row in rows:
            if row["status"] in (status.UNAVAILABLE, status.SKIPPED) and not row["digest"]:
                continue
            expected = present_digest(table, row)
            if expected is not None and row["digest"] != expected:
                stale.append(f"{table}.csv, {' '.join(str(part) for part in _key(table, row))}")
    if stale:
        listed = "\n".join(f"  {line}" for line in stale[:_LISTED])
        more = f"\n  and {len(stale) - _LISTED} more" if len(stale) > _LISTED else ""
        raise GemmlabError(
            f"{results}: {len(stale)} rows don't come from the present sources and settings; nothing was published. "
            f"Run snakemake again, then publish-run:\n{listed}{more}"
        )


def _refuse_sweep(
    rows: Sequence[Row], sizes: Iterable[int], environment: Mapping[str, Any], path: Path
) -> None:
    again = "Delete it and run `snakemake tune` again, then publish-run. Nothing was published."
    for name in dict.fromkeys(row["variant"] for row in rows):
        if fault := sweep_fault([row for row in rows if row["variant"] == name]):
            raise GemmlabError(f"{path}: the sweep of {name} is incomplete or mixed: {fault}. {again}")
    lacking = [str(size) for size in sizes if size not in {row["m"] for row in rows}]
    if lacking:
        raise GemmlabError(f"{path}: no row at size {', '.join(lacking)}, which {SETTINGS} names. {again}")
    here = [gpu["name"] for gpu in environment["gpus"]]
    others = sorted({str(row["gpu"]) for row in rows}.difference(here))
    if others:
        raise GemmlabError(
            f"{path}: gpu is {others[0]}, the run's environment has {', '.join(here)}. {again}"
        )


def _refuse_private(documents: Iterable[tuple[str, Any]], words: Iterable[str], results: Path) -> None:
    patterns = [
        *_PRIVATE,
        *(("this machine's or user's name", re.compile(rf"\b{re.escape(word)}\b")) for word in words),
    ]
    for name, document in documents:
        for where, text in _texts(document, name):
            for what, pattern in patterns:
                match = pattern.search(text)
                if match:
                    raise GemmlabError(
                        f"{results}, {where}: {match[0].strip()!r} looks like {what}, which is not to be published. "
                        "Nothing was written. Mend the stage that wrote it."
                    )


def _texts(document: Any, where: str) -> Iterable[tuple[str, str]]:
    """Every text in `document` with the path that leads to it."""
    if isinstance(document, str):
        yield where, document
    elif isinstance(document, Mapping):
        for key, value in document.items():
            yield from _texts(value, f"{where}.{key}")
    elif isinstance(document, Sequence):
        for number, value in enumerate(document):
            yield from _texts(value, f"{where}[{number}]")


def _write(
    folder: Path,
    tables: Mapping[str, Sequence[Row]],
    environment: Mapping[str, Any],
    manifest: dict[str, Any],
    catalogue: Mapping[str, Variant],
) -> None:
    """Write everything and the manifest last; what it doesn't list is removed from the folder's subfolders."""
    for name, rows in tables.items():
        write_table(folder / "tables" / f"{name}.csv", list(rows), name)
    write_json(folder / "environments" / f"{environment['id']}.json", environment)
    timings = read_table(folder / "tables" / "timings.csv", "timings")
    label = f"{manifest['gpu']}, {manifest['date'][:10]}"
    drawings = figures.timing_drawings(timings, catalogue, _headline_shape(tables["summary"]), label)
    if "tune" in tables:
        drawings = [*drawings, sweep_drawing(read_table(folder / "tables" / "tune.csv", "tune"))]
    drawn = {f"{drawing.name}.svg": drawing for drawing in drawings if drawing.figure is not None}
    allowed = [f"tables/{name}.csv" for name in tables]
    allowed += [f"environments/{identity}.json" for identity in manifest["environments"]]
    for name in RECORDED_FIGURES:
        if name in drawn:
            write_bytes(folder / "figures" / name, figures.save(drawn[name], None)["svg"])
            allowed.append(f"figures/{name}")
    for path in [path for kind in _KINDS for path in (folder / kind).glob("*")]:
        if path.is_file() and f"{path.parent.name}/{path.name}" not in allowed:
            path.unlink()
    for name in allowed:
        path = folder / name
        if path.is_file():
            rows = {"rows": len(tables[path.stem])} if path.suffix == ".csv" else {}
            manifest["files"].append({"path": name, "sha256": sha256_file(path), **rows})
    validate(manifest, "manifest", str(folder / "manifest.json"))
    write_json(folder / "manifest.json", manifest)


def _headline_shape(summary: Sequence[Row]) -> Shape:
    return summary[0]["m"], summary[0]["n"], summary[0]["k"]


def _own_names() -> list[str]:
    """This machine's and user's names, where they are more than a common word."""
    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(KeyError, OSError):
        names.add(getpass.getuser())
    return sorted(name for name in names - {"root", "localhost", "user"} if len(name) > 3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--results", required=True, type=Path, help="the run: results/<gpu>")
    parser.add_argument("--published", type=Path, default=repository_root() / "results" / "published")


def run(options: argparse.Namespace) -> int:
    """Publish a run and say what lies where."""
    config, catalogue = load_config(), load_catalogue()
    timings = read_rows(options.results / "tables" / "timings.csv", "timings")
    config["preset"] = next((row["preset"] for row in timings if row["preset"]), config["preset"])
    manifest = publish_run(
        options.results,
        options.published,
        catalogue,
        tree_digests(config, catalogue),
        _own_names(),
        load_space(repository_root() / SETTINGS).sizes,
    )
    print(f"{options.published / manifest['slug']}: {manifest['gpu']}, {manifest['date'][:10]}")
    for file in manifest["files"]:
        print(f"  {file['path']}" + (f" ({file['rows']} rows)" if "rows" in file else ""))
    print("`gemmlab readme` brings the README's table up to date.")
    return 0
