from __future__ import annotations

import pytest

from gemmlab.claims import load_claims
from gemmlab.contradictions import CONSISTENT, CONTRADICTION, calculate, contradiction_rows
from gemmlab.errors import GemmlabError


def one(agree, left="a / b", right="c", **operands):
    entry = {
        "id": "x",
        "claims": ["A1", "B2"],
        "subject": "the subject",
        "operands": operands,
        "left": {"name": "left side", "formula": left},
        "right": {"name": "right side", "formula": right},
        "agree": agree,
    }
    return contradiction_rows([entry])[0]


def test_formulas_are_arithmetic_over_the_operands():
    assert calculate("2 * n ** 3 / (t / 1000) / 1e12", {"n": 1024, "t": 1.6}) == pytest.approx(
        1.342, abs=1e-3
    )
    assert calculate("a - (b + 1)", {"a": 5, "b": 1}) == 3.0


@pytest.mark.parametrize(
    "formula", ["a +", "b", "a.real", "abs(a)", "a // 2", "'a'", "a / 0", "True if a else 0"]
)
def test_anything_else_in_a_formula_is_refused(formula):
    with pytest.raises(GemmlabError, match="formula"):
        calculate(formula, {"a": 1.0})


@pytest.mark.parametrize(
    ("agree", "operands", "verdict"),
    [
        ({"within": 0.3}, {"a": 8.7, "b": 1.0, "c": 2.5}, CONTRADICTION),
        ({"within": 0.3}, {"a": 2.6, "b": 1.0, "c": 2.5}, CONSISTENT),
        ({"at_least": 1}, {"a": 12, "b": 1.555, "c": 10}, CONTRADICTION),
        ({"at_least": 1}, {"a": 12, "b": 1.0, "c": 10}, CONSISTENT),
        ({"at_most": 1}, {"a": 18.72, "b": 1, "c": 1.6}, CONTRADICTION),
        ({"within": 0}, {"a": 1, "b": 3, "c": 1 / 3}, CONSISTENT),
    ],
)
def test_a_row_is_judged_by_the_quotient(agree, operands, verdict):
    assert one(agree, **operands)["verdict"] == verdict


def test_the_sentence_holds_both_sides_and_how_far_they_lie_apart():
    row = one({"within": 0.3}, a=8.75, b=1, c=2.5)
    assert row["sentence"] == "The subject: left side 8.75, right side 2.5; 3.5 times apart."
    assert row["claims"] == "A1 B2"
    assert row["operands"] == "a 8.75, b 1, c 2.5"
    assert one({"within": 0.05}, a=1.2, b=1, c=1)["sentence"].endswith("; 20 % apart.")
    assert one({"within": 0.3}, a=1.2, b=1, c=1)["sentence"].endswith("; they agree.")


def test_the_articles_contradictions_are_found_from_their_figures():
    rows = {row["contradiction"]: row for row in contradiction_rows(load_claims()["contradictions"])}
    quotients = {
        "gain_of_tiling": 8.748 / 2.4615,
        "saturated_memory": 0.5184 / 8.5899,
        "intensity_bound": 1.34 / 0.09,
        "bandwidths": 7.717 / 10,
        "share_of_peak": 2.913 / 10,
        "warp_of_a_and_b": 16 / 32,
        "ideal_traffic": 32,
    }
    for name, quotient in quotients.items():
        assert rows[name]["verdict"] == CONTRADICTION
        assert rows[name]["quotient"] == pytest.approx(quotient, rel=1e-3)
    consistent = {name for name, row in rows.items() if row["verdict"] == CONSISTENT}
    assert consistent == {"naive_time_and_rate", "speed_ups_of_the_table"}
