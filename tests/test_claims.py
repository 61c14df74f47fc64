from __future__ import annotations

import dataclasses
import json
import re

import claim_cases as runs
import publish_cases as cases
import pytest
import yaml
from claim_cases import count, entry, make_run, profile, timed_run

from gemmlab import claims, cli
from gemmlab.claims import NOT_REPRODUCED, OPPOSITE, REPRODUCED, UNTESTED, judge, load_claims
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.profile import plan_shapes
from gemmlab.run_view import NEEDS_GPU, Figure
from gemmlab.schema import read_table, validate
from gemmlab.tables import rows_of
from gemmlab.timing.settings import Settings

# Parts that a run without a GPU decides, as issue and design ask for.
WITHOUT_GPU = (
    *(
        "A5",
        "A8a",
        "A12a",
        "A12b",
        "A12c",
        "A12d",
        "A13a",
        "A18",
        "A19a",
        "A19b",
        "A23",
        "B6a",
        "B6b",
        "B10a",
    ),
    *("B14", "B15", "B16a", "B16b", "C1a", "C1b", "C2a", "C3a", "C3b", "C4a", "C8a", "C8b"),
)
# What no H200 can decide: it has neither a library that doesn't match nor another kind of GPU.
NEVER = {"A26", "C6b"}


@pytest.fixture(scope="module")
def document():
    return load_claims()


# ---- The file


def test_every_claim_of_the_three_articles_is_there(document):
    numbers = {re.match(r"[ABC]\d+", name)[0] for name in document["claims"]}
    expected = [
        *(f"A{i}" for i in range(1, 28)),
        *(f"B{i}" for i in range(1, 17)),
        *(f"C{i}" for i in range(1, 11)),
    ]
    assert numbers == set(expected)
    for name in numbers:
        parts = [claim for claim in document["claims"] if re.fullmatch(rf"{name}[a-z]?", claim)]
        assert parts in ([name], [f"{name}{letter}" for letter in "abcdefgh"[: len(parts)]])


def names_in(value):
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set().union(*(names_in(part) for part in value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


def test_every_variant_that_a_claim_names_is_in_the_catalogue(document, catalogue):
    for name, claim in document["claims"].items():
        for measurement in (claim["measurement"], claim.get("also", {})):
            wanted = [measurement.get(key, []) for key in ("of", "over", "among")]
            if measurement.get("measure") == "probe":
                assert {place[0] for place in wanted if place} <= set(catalogue), name
                assert all(place[1] in catalogue[place[0]].results for place in wanted if place), name
            else:
                assert names_in(wanted) <= set(catalogue), name
    for table in ("a", "c"):
        assert {row["variant"] for row in document["tables"][table]} <= set(catalogue)


def test_contradictions_name_claims_that_exist(document):
    known = {re.match(r"[ABC]\d+", name)[0] for name in document["claims"]}
    for contradiction in document["contradictions"]:
        assert set(contradiction["claims"]) <= known


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda claim: claim.update(measured=2.5), "claims.A1 has the unknown key measured"),
        (lambda claim: claim.pop("expectation"), "claims.A1 lacks the key expectation"),
        (
            lambda claim: claim["measurement"].update(measure="guess"),
            "claim A1, measurement: measure is guess",
        ),
        (
            lambda claim: claim["measurement"].pop("shapes"),
            "claim A1, measurement: measure speed: missing a required",
        ),
        (
            lambda claim: claim.update(expectation={"about": [1, 2], "within": 0}),
            "about has 2 figures for 1 shapes",
        ),
        (lambda claim: claim.update(expectation={"about": 1}), "claims.A1.expectation"),
    ],
)
def test_a_faulty_claim_is_one_message(document, tmp_path, change, message):
    copy = json.loads(json.dumps(document))
    change(copy["claims"]["A1"])
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(copy))
    with pytest.raises(GemmlabError, match=re.escape(message)):
        load_claims(path)


# ---- Verdicts


@pytest.mark.parametrize(
    ("expectation", "value", "verdict"),
    [
        ({"about": 2.5, "within": 0.3, "opposite": {"under": 0.98}}, 2.0, REPRODUCED),
        ({"about": 2.5, "within": 0.3, "opposite": {"under": 0.98}}, 3.3, NOT_REPRODUCED),
        ({"about": 2.5, "within": 0.3, "opposite": {"under": 0.98}}, 0.5, OPPOSITE),
        ({"about": 2, "within": 0}, 2.0, REPRODUCED),
        ({"about": 2, "within": 0}, 2.001, NOT_REPRODUCED),
        ({"about": 0.1, "within": 0}, 0.1 + 1e-17, REPRODUCED),
        ({"at_least": 1.03, "opposite": {"under": 0.98}}, 1.02, NOT_REPRODUCED),
        ({"at_least": 1.03, "opposite": {"under": 0.98}}, 0.9, OPPOSITE),
        ({"at_most": 35, "opposite": {"over": 50}}, 17, REPRODUCED),
        ({"at_most": 35, "opposite": {"over": 50}}, 80, OPPOSITE),
        ({"between": [3, 8]}, 16, NOT_REPRODUCED),
        ({"is": ["tile16"]}, "tile16", REPRODUCED),
        ({"is": ["tile16"]}, "tile32", NOT_REPRODUCED),
        ({"is": ["unnoticed"], "opposite": {"is": ["caught"]}}, "caught", OPPOSITE),
        ({"is_not": ["CUDA_SUCCESS"]}, "CUDA_SUCCESS", NOT_REPRODUCED),
        ({"is_not": ["CUDA_SUCCESS"]}, "CUDA_ERROR_INVALID_VALUE", REPRODUCED),
    ],
)
def test_a_figure_is_judged_by_its_value(expectation, value, verdict):
    assert judge(Figure("", value), expectation) == verdict


def test_an_opposite_needs_the_whole_interval():
    expectation = {"at_least": 1.03, "opposite": {"under": 0.98}}
    assert judge(Figure("", 0.95, low=0.92, high=0.97), expectation) == OPPOSITE
    assert judge(Figure("", 0.95, low=0.92, high=0.99), expectation) == NOT_REPRODUCED


def test_several_figures_make_one_verdict():
    assert claims.combine([REPRODUCED, REPRODUCED]) == REPRODUCED
    assert claims.combine([OPPOSITE, OPPOSITE]) == OPPOSITE
    assert claims.combine([REPRODUCED, OPPOSITE]) == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("expectation", "text"),
    [
        ({"about": 10, "within": 0.4}, "10 within 40 %"),
        ({"about": [6.7, 9.0], "within": 0.3}, "6.7, 9 within 30 %"),
        ({"about": 2, "within": 0}, "exactly 2"),
        ({"between": [5, 15]}, "5 to 15"),
        ({"at_least": 0.05}, "at least 0.05"),
        ({"at_most": 35, "opposite": {"over": 50}}, "at most 35"),
        ({"is": ["a", "b"]}, "a or b"),
        ({"is_not": ["CUDA_SUCCESS"]}, "anything but CUDA_SUCCESS"),
    ],
)
def test_a_tolerance_in_words(expectation, text):
    assert claims.tolerance_text(expectation) == text


def claim(**fields):
    return {
        "statement": "The tile is faster.",
        "form": "time of naive over time of the tile",
        "measurement": {"measure": "speed_up", "of": "tile", "over": "naive", "shapes": [1024, 2048]},
        "expectation": {"about": [2.0, 3.0], "within": 0.1},
    } | fields


def row_of(run, **fields):
    return claims.claim_rows(run, {"A6": claim(**fields)})[0]


def test_a_row_tells_figures_verdict_and_what_was_expected():
    run = timed_run({"naive": {1024: 4.0, 2048: 31.0}, "tile": {1024: 2.0, 2048: 10.0}})
    row = row_of(
        run,
        reported="2x",
        also={"form": "the other way", "measure": "fastest", "among": ["tile", "naive"], "shapes": [1024]},
    )
    assert row["verdict"] == REPRODUCED
    assert row["measured"] == "2 at 1024^3; 3.1 at 2048^3"
    assert row["tolerance"] == "2, 3 within 10 %"
    assert row["evidence"] == (
        "Time of naive over time of the tile: 2 at 1024^3 (naive 4 ms, tile 2 ms); "
        "3.1 at 2048^3 (naive 31 ms, tile 10 ms); "
        "expected 2, 3 within 10 %. The other way: tile at 1024^3."
    )
    validate(row, "claims", "row")


def test_each_shape_has_its_own_figure_to_meet():
    run = timed_run({"naive": {1024: 6.0, 2048: 20.0}, "tile": {1024: 2.0, 2048: 10.0}})
    assert row_of(run)["verdict"] == NOT_REPRODUCED
    assert row_of(run, expectation={"about": [3.0, 2.0], "within": 0.1})["verdict"] == REPRODUCED


def test_a_claim_is_decided_where_a_shape_is_there_and_says_what_lacks():
    run = timed_run({"naive": {1024: 4.0, 2048: 20.0}, "tile": {1024: 2.0}})
    row = row_of(run)
    assert row["verdict"] == REPRODUCED
    assert row["status"] == "ok"
    assert "Not at 2048^3: tile was not timed" in row["evidence"]


def test_an_untested_claim_says_why_and_shows_what_there_is():
    run = make_run([entry(cases.kernel(name), gpu=False) for name in ("naive", "tile")])
    row = row_of(run, also={"form": "registers", "measure": "resource", "field": "registers", "of": ["tile"]})
    assert (row["verdict"], row["status"], row["reason"]) == (UNTESTED, "unavailable", NEEDS_GPU)
    assert row["measured"] is None
    assert row["evidence"] == "Registers: 32 for tile."
    validate(row, "claims", "row")


def test_the_digest_follows_the_claim_and_its_records():
    run = timed_run({"naive": {1024: 4.0}, "tile": {1024: 2.0}, "other": {1024: 1.0}})
    before = row_of(run)["digest"]
    assert row_of(run)["digest"] == before
    assert row_of(run, statement="Another.")["digest"] != before
    changed = timed_run({"naive": {1024: 4.0}, "tile": {1024: 2.0}, "other": {1024: 5.0}})
    assert row_of(changed)["digest"] == before


# ---- Whole runs


def emulated(variant, shapes):
    """Counters that are all 1, but for a naive warp's two sectors a request."""
    counters = dict.fromkeys(COUNTER_NAMES, 1)
    if variant.name == "naive":
        counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] = 2
    counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] = 0
    return count(variant.name, dict.fromkeys(shapes, counters))


COUNTER_NAMES = (
    *(
        f"l1tex__t_{what}_pipe_lsu_mem_global_op_{kind}.sum"
        for what in ("requests", "sectors")
        for kind in ("ld", "st")
    ),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}.sum" for kind in ("ld", "st")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum" for kind in ("ld", "st")),
    *(
        f"smsp__inst_executed_op_{space}_{kind}.sum"
        for space in ("shared", "global")
        for kind in ("ld", "st")
    ),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    *(
        "ptx_instructions",
        "ptx_block_barriers",
        "ptx_thread_fma",
        "ptx_thread_global_loads",
        "ptx_thread_global_stores",
    ),
)


def whole_run(catalogue, *, gpu):
    """A run of the whole catalogue in preset standard: every stage gave something at each shape that it looks at."""
    config = load_config()
    settings = {key: config[key] for key in ("preset", "seed", "headline_shape", "bench")}
    timing_settings = Settings.parse(json.dumps(settings))
    profile_settings = settings | {"profile": config["profile"], "count": config["count"]}
    entries = []
    for variant in catalogue.values():
        fields = {}
        if variant.kind in ("kernel", "broken"):
            shapes = [tuple(shape) for shape in variant.count_shapes or config["count"]["shapes"]]
            fields["count"] = emulated(variant, shapes)
        if variant.kind == "broken":
            states = ("emulator", "cuda") if gpu else ("emulator",)
            fields["checks"] = {state: cases.check_record(variant.name, state, "failed") for state in states}
        if gpu and variant.kind in ("kernel", "baseline"):
            own = {"arithmetic": variant.arithmetic}
            own |= {} if variant.compiled else {"cubin_sha256": None}
            fields["bench"] = [
                cases.timing(variant.name, shape, "cold", 20.0, **own)
                for shape in timing_settings.shapes(variant)
            ]
            plan = plan_shapes(variant, profile_settings)
            fields["profile"] = profile(
                variant.name, {shape: dict.fromkeys(names, 50.0) for shape, names in plan.shapes.items()}
            )
        entries.append(entry(variant, gpu=gpu, **fields))
    probes = {}
    if gpu:
        probes = {
            name: runs.probe_record(name, **{result: [1.0] * 4 for result in variant.results})
            for name, variant in catalogue.items()
            if variant.kind == "probe"
        }
        cases_tried = [
            "cubin_without_architecture",
            "fatbin_without_architecture",
            "cubin_for_another_architecture",
            "ptx_of_a_newer_version",
            "shared_memory_over_the_limit",
            "shared_memory_at_the_limit",
            "shared_memory_without_opting_in",
        ]
        answers = {case: {"error": "CUDA_ERROR", "message": "words"} for case in cases_tried}
        probes["refusals"] = {"probe": "refusals", "status": "ok", "reason": None, "answers": answers}
    tables = (
        {"tune": [runs.swept_row(edge, "64x64", "8x8", 1.0) for edge in (512, 1024, 4096)]} if gpu else {}
    )
    return make_run(entries, probes, tables)


def test_with_a_gpu_preset_standard_decides_every_claim_that_a_gpu_can(document, catalogue):
    rows = claims.claim_rows(whole_run(catalogue, gpu=True), document["claims"])
    untested = {row["claim"]: row["reason"] for row in rows if row["verdict"] == UNTESTED}
    assert set(untested) == NEVER, untested
    assert not [row["claim"] for row in rows if "Not at" in (row["evidence"] or "")]


def test_without_a_gpu_counting_decides_what_it_can(document, catalogue):
    rows = {
        row["claim"]: row for row in claims.claim_rows(whole_run(catalogue, gpu=False), document["claims"])
    }
    assert [name for name in WITHOUT_GPU if rows[name]["verdict"] == UNTESTED] == []
    for name, row in rows.items():
        if row["verdict"] == UNTESTED and name not in NEVER:
            assert row["reason"] == NEEDS_GPU, name
    decided = {re.match(r"[ABC]\d+", name)[0] for name, row in rows.items() if row["verdict"] != UNTESTED}
    assert len(decided) >= 16


def test_the_command_writes_every_table(tmp_path, monkeypatch, capsys, catalogue):
    small = cases.write_small_run(tmp_path, gpu=True)
    naive = catalogue["naive"]
    small["naive"] = dataclasses.replace(small["naive"], launches=naive.launches, macros=naive.macros)
    monkeypatch.setattr(claims, "load_catalogue", lambda: small)
    assert cli.main(["claims", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r": \d+ claims and parts: .*\d+ untested", said)
    for name in claims.TABLES:
        table = rows_of(read_table(tmp_path / "tables" / f"{name}.csv", name), name)
        # None of article C's kernels is in this run, and a row needs their macros.
        assert table or name == "article_c"
        assert {row["environment"] for row in table} <= {cases.environment_record(True)["id"]}
    rows = rows_of(read_table(tmp_path / "tables" / "claims.csv", "claims"), "claims")
    by_claim = {row["claim"]: row for row in rows}
    assert by_claim["A9a"]["verdict"] in (REPRODUCED, NOT_REPRODUCED, OPPOSITE)
    assert by_claim["B9"]["reason"] == "two_accumulators is not in this run"


def test_the_summary_counts_verdicts():
    rows = [{"verdict": REPRODUCED, "reason": None}, {"verdict": UNTESTED, "reason": NEEDS_GPU}]
    assert (
        claims.summary_line(rows)
        == "2 claims and parts: 1 reproduced, 1 untested (1 of them for want of a GPU)"
    )
