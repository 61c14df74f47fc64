from __future__ import annotations

import dataclasses

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.shapes import draw_problems, large_problems


@pytest.fixture(scope="module")
def problems(catalogue):
    return draw_problems(catalogue["tile16"], 300, seed=7)


def test_number_order_and_budget(problems, catalogue):
    assert len(set(problems)) == 300
    fmas = [problem.fmas for problem in problems]
    assert fmas == sorted(fmas)
    assert fmas[0] == 1
    assert 1_000_000 < fmas[-1] <= catalogue["tile16"].check_fmas


def test_edges_of_the_tile_are_all_there(problems):
    shapes = {(problem.m, problem.n, problem.k) for problem in problems}
    for sides in (
        (1, 1, 1),
        (15, 17, 16),
        (16, 16, 16),
        (17, 15, 33),
        (33, 33, 33),
        (35, 79, 19),
        (128, 128, 1),
    ):
        assert sides in shapes
    assert any(problem.k >= 1023 for problem in problems)


def test_what_random_shapes_must_cover(problems):
    assert sum(problem.k % 4 != 0 for problem in problems) > 100
    assert sum(len({problem.m, problem.n, problem.k}) == 3 for problem in problems) > 150
    for lead, row in (("lda", "k"), ("ldb", "n"), ("ldc", "n")):
        assert sum(getattr(problem, lead) > getattr(problem, row) for problem in problems) > 100
    assert (
        {problem.alpha for problem in problems}
        == {problem.beta for problem in problems}
        == {0.0, 1.0, -0.5, 1.5}
    )


def test_seed_decides(catalogue):
    first = draw_problems(catalogue["naive"], 40, seed=1)
    assert first == draw_problems(catalogue["naive"], 40, seed=1)
    assert first != draw_problems(catalogue["naive"], 40, seed=2)


def test_constraints_are_met_and_impossible_ones_named(catalogue):
    variant = dataclasses.replace(
        catalogue["tile16"], constraints=("k % 4 == 0", "lda % 4 == 0", "n % 8 == 0")
    )
    for problem in draw_problems(variant, 200, seed=3):
        assert variant.unsupported(problem) is None
    variant = dataclasses.replace(variant, constraints=("k == 3",))
    with pytest.raises(GemmlabError, match=r"only \d+ of 300 problems found that meet k == 3"):
        draw_problems(dataclasses.replace(variant, constraints=("k == 3", "m == 3")), 300, seed=3)


def test_large_problems_are_large(catalogue):
    problems = large_problems(catalogue["tile16"], seed=3)
    assert all(problem.fmas >= 10**8 for problem in problems[:4])
    assert [max(problem.m, problem.n, problem.k) for problem in problems[4:]] == [5003] * 3
    assert all(problem.alpha for problem in problems[4:])


def test_some_problems_have_one_long_side(catalogue):
    shapes = {(p.m, p.n, p.k) for p in draw_problems(catalogue["tile16"], 300, seed=3) if p.alpha}
    assert {(3, 5, 2053), (2053, 3, 2), (3, 2053, 2)} <= shapes
    # A tile of 128 x 128 would compute 34 million multiply-adds for five columns.
    assert (3, 5, 2053) not in {
        (p.m, p.n, p.k) for p in draw_problems(catalogue["three_level_tile"], 300, seed=3)
    }
