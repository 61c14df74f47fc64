"""Stage claims: verdicts on the articles' claims, their contradictions and tables, and each variant's story."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmlab import status
from gemmlab.article_tables import article_rows
from gemmlab.catalogue import Variant, load_catalogue, select
from gemmlab.contradictions import contradiction_rows
from gemmlab.errors import GemmlabError
from gemmlab.evidence import Part, bind, measure
from gemmlab.files import read_yaml, repository_root, sha256_of
from gemmlab.run_view import NEEDS_GPU, Figure, Run, as_shape, number
from gemmlab.schema import validate, write_table
from gemmlab.story import story_rows
from gemmlab.tables import (
    Row,
    Shape,
    build_tables,
    read_asked_for,
    read_environment,
    read_records,
    read_refusals,
    shape_text,
)

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not_reproduced"
OPPOSITE = "opposite"
UNTESTED = "untested"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, OPPOSITE, UNTESTED)
# What this stage writes, in the order of the report.
TABLES = ("claims", "contradictions", "story", "article_a", "article_b", "article_c")

_ROUNDING = 1e-9


def load_claims(path: Path | None = None) -> dict[str, Any]:
    """The validated content of config/claims.yaml, or of another file.

    Raises:
        GemmlabError: a key is unknown, or a measure is or takes other parameters; the message names the claim.
    """
    path = path or repository_root() / "config" / "claims.yaml"
    document = read_yaml(path)
    validate(document, "claim", str(path))
    for name, claim in document["claims"].items():
        for key in ("measurement", "also"):
            if key in claim:
                try:
                    bind(_without_form(claim[key]))
                except GemmlabError as error:
                    raise GemmlabError(f"{path}: claim {name}, {key}: {error}") from error
        _check_figures(claim, f"{path}: claim {name}")
    return document


def _check_figures(claim: Mapping[str, Any], where: str) -> None:
    about, shapes = claim["expectation"].get("about"), claim["measurement"].get("shapes", ())
    if isinstance(about, list) and len(about) != len(shapes):
        raise GemmlabError(
            f"{where}: about has {len(about)} figures for {len(shapes)} shapes; expected as many."
        )


def _without_form(measurement: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in measurement.items() if key != "form"}


# ---- Verdicts


def judge(figure: Figure, expectation: Mapping[str, Any], about: float | None = None) -> str:
    """Whether one figure is what a claim says.

    `reproduced` by its value; `opposite` if its whole interval lies beyond what the expectation calls the opposite.
    `about` is the expectation's figure where it has several.
    """
    value = figure.value
    contrary = expectation.get("opposite", {})
    if isinstance(value, str):
        wanted = value in expectation["is"] if "is" in expectation else value not in expectation["is_not"]
        otherwise = OPPOSITE if value in contrary.get("is", ()) else NOT_REPRODUCED
        return REPRODUCED if wanted else otherwise
    low, high = _wanted(expectation, about)
    slack = _ROUNDING * max(1.0, abs(value))
    if low - slack <= value <= high + slack:
        return REPRODUCED
    most = figure.high if figure.high is not None else value
    least = figure.low if figure.low is not None else value
    if most < contrary.get("under", -math.inf) or least > contrary.get("over", math.inf):
        return OPPOSITE
    return NOT_REPRODUCED


def _wanted(expectation: Mapping[str, Any], about: float | None) -> tuple[float, float]:
    if about is None:
        about = expectation.get("about")
    if about is not None:
        margin = abs(about) * expectation["within"]
        return about - margin, about + margin
    if "between" in expectation:
        low, high = expectation["between"]
        return low, high
    return expectation.get("at_least", -math.inf), expectation.get("at_most", math.inf)


def combine(verdicts: Sequence[str]) -> str:
    """One verdict for several figures: all of them, or not reproduced."""
    return verdicts[0] if len(set(verdicts)) == 1 else NOT_REPRODUCED


def tolerance_text(expectation: Mapping[str, Any]) -> str:
    """An expectation in words: `10 within 40 %`, `at least 80`, `5 to 15`."""
    if "about" in expectation:
        about = expectation["about"]
        figures = ", ".join(map(number, about)) if isinstance(about, list) else number(about)
        return (
            f"{figures} within {100 * expectation['within']:g} %"
            if expectation["within"]
            else f"exactly {figures}"
        )
    if "between" in expectation:
        return "{} to {}".format(*map(number, expectation["between"]))
    if "is" in expectation:
        return " or ".join(expectation["is"])
    if "is_not" in expectation:
        return f"anything but {' or '.join(expectation['is_not'])}"
    key = "at_least" if "at_least" in expectation else "at_most"
    return f"{key.replace('_', ' ')} {number(expectation[key])}"


# ---- claims.csv


def claim_rows(run: Run, claims: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """claims.csv: a row for each claim or part of one. An untested one has status unavailable and the reason."""
    return [_claim_row(run, name, claim) for name, claim in claims.items()]


def _claim_row(run: Run, name: str, claim: Mapping[str, Any]) -> Row:
    measurement, expectation = claim["measurement"], claim["expectation"]
    parts = measure(run, measurement)
    verdicts, figures = [], []
    for number_of_part, part in enumerate(parts):
        about = expectation.get("about")
        about = about[number_of_part] if isinstance(about, list) else about
        verdicts += [judge(figure, expectation, about) for figure in part.figures]
        figures += part.figures
    missing = list(dict.fromkeys(part.missing for part in parts if part.missing))
    row: Row = {
        "claim": name,
        "article": name[0],
        "statement": claim["statement"],
        "reported": claim.get("reported"),
        "measured": "; ".join(_short(figure) for figure in figures) or None,
        "tolerance": tolerance_text(expectation),
        "verdict": combine(verdicts) if verdicts else UNTESTED,
        "evidence": _evidence(claim, figures, parts, _also(run, claim)),
        "status": status.OK if verdicts else status.UNAVAILABLE,
        "reason": None if verdicts else "; ".join(missing),
    }
    names = _names_in(measurement) & set(run.records) or set(run.records)
    row["digest"] = sha256_of([json.dumps(claim, sort_keys=True), run.digest(names) or ""])[:16]
    return row


def _short(figure: Figure) -> str:
    return f"{number(figure.value)} {figure.label}".rstrip()


def _also(run: Run, claim: Mapping[str, Any]) -> str:
    if "also" not in claim:
        return ""
    figures = [figure for part in measure(run, _without_form(claim["also"])) for figure in part.figures]
    form = claim["also"]["form"]
    return f"{form[0].upper()}{form[1:]}: {'; '.join(map(_short, figures))}." if figures else ""


def _sentence(form: str, figures: Sequence[Figure]) -> str:
    return f"{form[0].upper()}{form[1:]}: {'; '.join(map(str, figures))}"


def _evidence(
    claim: Mapping[str, Any], figures: Sequence[Figure], parts: Sequence[Part], also: str
) -> str | None:
    sentences = []
    if figures:
        sentences.append(
            f"{_sentence(claim['form'], figures)}; expected {tolerance_text(claim['expectation'])}."
        )
        shapes = claim["measurement"].get("shapes", [])
        sentences += [
            f"Not at {shape_text(as_shape(shape))}: {part.missing}."
            for shape, part in zip(shapes, parts, strict=False)
            if part.missing
        ]
    return " ".join(filter(None, [*sentences, also])) or None


def _names_in(value: Any) -> set[str]:
    """Every text in a measurement; those that name variants say whose records decide."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return set().union(*map(_names_in, value.values()))
    return set().union(*map(_names_in, value)) if isinstance(value, Sequence) else set()


# ---- The stage


def read_run(results: Path, catalogue: Mapping[str, Variant], headline_shape: Shape) -> Run:
    """A run's records and tables, and what its probes measured.

    Raises:
        GemmlabError: a record is broken or doesn't follow its schema.
    """
    records = read_records(results, catalogue)
    probes = {entry.variant.name: entry.probe for entry in records if entry.probe}
    refusals = read_refusals(results)
    return Run(
        catalogue=catalogue,
        records={entry.variant.name: entry for entry in records},
        tables=build_tables(records, headline_shape, read_environment(results)) | read_asked_for(results),
        probes=probes | ({"refusals": refusals} if refusals else {}),
    )


def write_claims(
    results: Path, run: Run, document: Mapping[str, Any], headline_shape: Shape
) -> dict[str, list[Row]]:
    """Write every table of this stage into `results`/tables; gives their rows by name."""
    tables = {
        "claims": claim_rows(run, document["claims"]),
        "contradictions": contradiction_rows(document["contradictions"]),
        "story": story_rows(run, headline_shape),
        **article_rows(run, document["tables"]),
    }
    identity = (read_environment(results) or {}).get("id")
    for name, rows in tables.items():
        write_table(
            results / "tables" / f"{name}.csv", [row | {"environment": identity} for row in rows], name
        )
    return tables


def summary_line(rows: Sequence[Row]) -> str:
    """How many claims ended how, and how many of those untested only want a GPU."""
    counts = Counter(row["verdict"] for row in rows)
    parts = [f"{counts[verdict]} {verdict.replace('_', ' ')}" for verdict in VERDICTS if counts[verdict]]
    waiting = sum(row["reason"] == NEEDS_GPU for row in rows)
    text = f"{len(rows)} claims and parts: {', '.join(parts)}"
    return f"{text} ({waiting} of them for want of a GPU)" if waiting else text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--results", required=True, type=Path, help="the run: results/<device>")
    parser.add_argument("--claims", type=Path, help="default: config/claims.yaml")
    parser.add_argument(
        "--settings",
        type=json.loads,
        default={},
        help="JSON: headline_shape and variants of the configuration",
    )


def run(options: argparse.Namespace) -> int:
    """Decide the claims of a run and print how many ended how; the exit status is 0 whatever they say."""
    catalogue = select(load_catalogue(), options.settings.get("variants", []))
    headline_shape = as_shape(options.settings.get("headline_shape", 4096))
    document = load_claims(options.claims)
    seen = read_run(options.results, catalogue, headline_shape)
    tables = write_claims(options.results, seen, document, headline_shape)
    print(f"{options.results}: {summary_line(tables['claims'])}")
    return 0
