"""The problems of a check: seeded, small first, crowded around the edges of the variant's own tile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from gemmlab.catalogue import Variant
from gemmlab.errors import GemmlabError
from gemmlab.expression import cdiv
from gemmlab.problem import Problem

SCALARS = (0.0, 1.0, -0.5, 1.5)
_PRIMES = (
    2,
    3,
    5,
    7,
    11,
    13,
    17,
    19,
    23,
    29,
    31,
    37,
    41,
    53,
    61,
    67,
    79,
    97,
    101,
    113,
    127,
    131,
    151,
    191,
    251,
    257,
)
# Shapes on which kernels of others fell over: too small for a tile, a K of one, nothing a multiple of anything.
_NOTORIOUS = ((1, 1, 1), (128, 128, 1), (35, 79, 19), (100, 100, 100), (16, 16, 1023), (128, 128, 128))
# Longer than any other shape here, for indices of 16 bits and loops that end too early; only where the tile leaves
# the budget for them.
_LONG = ((3, 5, 2053), (2053, 3, 2), (3, 2053, 2))
# The same for a GPU.
_LONGER = ((37, 53, 5003), (5003, 37, 53), (37, 5003, 53))
_PADDINGS = (0, 0, 1, 3, 4, 8, 13, 16)
_ATTEMPTS = 2000


def draw_problems(variant: Variant, shapes: int, seed: int) -> list[Problem]:
    """`shapes` different problems that `variant` supports, ordered by their number of multiply-adds.

    Every corner of the tile comes first (1, t - 1, t, t + 1, 2 t + 1 in each dimension, several k tiles), then the
    notorious ones, some with one long side, then random ones. None has more than `variant.check_fmas` multiply-adds,
    and no long or random one has more even if its tiles are counted whole.

    Raises:
        GemmlabError: the variant's constraints leave too few problems.
    """
    generator = np.random.default_rng([seed, *variant.name.encode()])
    chosen: dict[Problem, None] = {}
    long = [
        problem
        for problem in _with_product(variant, _LONG, generator, variant.check_fmas)
        if _padded_fmas(variant, problem) <= variant.check_fmas
    ]
    corners = (_dress(variant, shape, generator) for shape in _corners(variant))
    for problem in [*(problem for problem in corners if problem is not None), *long]:
        if len(chosen) < shapes:
            chosen.setdefault(problem)
    attempts = 0
    while len(chosen) < shapes:
        attempts += 1
        if attempts > _ATTEMPTS + 50 * shapes:
            raise GemmlabError(
                f"variant {variant.name}: only {len(chosen)} of {shapes} problems found that meet "
                f"{', '.join(variant.constraints) or 'its limits'} within {variant.check_fmas} multiply-adds. "
                "Loosen the constraints or raise check_fmas."
            )
        problem = _dress(variant, _random_shape(variant, generator), generator)
        if problem is not None and _padded_fmas(variant, problem) <= variant.check_fmas:
            chosen.setdefault(problem)
    return sorted(chosen, key=lambda problem: problem.fmas)


def large_problems(variant: Variant, seed: int, count: int = 4) -> list[Problem]:
    """A few problems of 100 M to 4 G multiply-adds for a GPU, and three with one side of 5003.

    Sides are drawn so that no dimension is a multiple of another, then rounded if the constraints ask for it.
    """
    generator = np.random.default_rng([seed, 1, *variant.name.encode()])
    chosen: list[Problem] = []
    for _ in range(_ATTEMPTS):
        if len(chosen) == count:
            break
        m, n, k = (int(side) for side in generator.integers(467, 1597, 3))
        problem = _dress(variant, (m, n, k), generator, fmas_limit=2**32)
        if problem is not None:
            chosen.append(problem)
    return [*chosen, *_with_product(variant, _LONGER, generator, fmas_limit=2**32)]


def _with_product(
    variant: Variant, shapes: Iterable[tuple[int, int, int]], generator: np.random.Generator, fmas_limit: int
) -> list[Problem]:
    """`shapes` as problems whose alpha isn't 0, so that A and B are read."""
    drawn = (_dress(variant, shape, generator, fmas_limit) for shape in shapes)
    return [
        dataclasses.replace(problem, alpha=problem.alpha or 1.0) for problem in drawn if problem is not None
    ]


def _padded_fmas(variant: Variant, problem: Problem) -> int:
    """Multiply-adds of all tiles that the problem touches: what a kernel computes and an emulator waits for."""
    return math.prod(
        cdiv(side, tile) * tile
        for side, tile in zip((problem.m, problem.n, problem.k), variant.tile, strict=True)
    )


def _corners(variant: Variant) -> list[tuple[int, int, int]]:
    bm, bn, bk = variant.tile
    around = [lambda t: 1, lambda t: t - 1, lambda t: t, lambda t: t + 1, lambda t: 2 * t + 1]
    shapes = [(f(bm), g(bn), h(bk)) for f in around for g in around for h in around]
    shapes += [
        (bm, bn, 3 * bk),
        (bm + 1, bn - 1, 4 * bk + 1),
        (2 * bm, 2 * bn, 2 * bk),
        (1, 3 * bn + 1, 5 * bk - 1),
    ]
    # Small first, so that the simplest failing problem is the first one reported.
    shapes.sort(key=lambda shape: shape[0] * shape[1] * shape[2])
    return [*_NOTORIOUS, *shapes]


def _random_shape(variant: Variant, generator: np.random.Generator) -> tuple[int, int, int]:
    budget = variant.check_fmas
    order = generator.permutation(3)
    shape = [1, 1, 1]
    for axis in order:
        limit = max(1, budget // (shape[0] * shape[1] * shape[2]))
        shape[axis] = min(_side(variant.tile[axis], generator), limit)
    return shape[0], shape[1], shape[2]


def _side(tile: int, generator: np.random.Generator) -> int:
    match generator.integers(6):
        case 0:
            return int(generator.integers(1, 9))
        case 1:
            return int(generator.choice(_PRIMES))
        case 2:
            return max(1, tile * int(generator.integers(1, 4)) + int(generator.integers(-1, 2)))
        case 3:
            # Skinny problems: one long side, which the budget then cuts.
            return int(generator.integers(256, 1025))
        case _:
            return int(np.exp(generator.uniform(0, np.log(300))))


def _dress(
    variant: Variant,
    shape: tuple[int, int, int],
    generator: np.random.Generator,
    fmas_limit: int | None = None,
) -> Problem | None:
    """`shape` with scalars and leading dimensions drawn, rounded up where only that meets the constraints."""
    limit = variant.check_fmas if fmas_limit is None else fmas_limit
    alpha, beta = (float(generator.choice(SCALARS)) for _ in range(2))
    paddings = [int(generator.choice(_PADDINGS)) for _ in range(4)]
    for multiple in (1, 2, 4, 8, 16, 32):
        sides = [max(1, side) for side in shape]
        m, n, k = (-(-side // multiple) * multiple for side in sides)
        lda, ldb, ldc, ldd = (
            -(-(row + padding) // multiple) * multiple
            for row, padding in zip((k, k if variant.transpose_b else n, n, n), paddings, strict=True)
        )
        if not variant.separate_output:
            ldd = ldc
        problem = Problem(m, n, k, lda, ldb, ldc, ldd, alpha, beta, variant.transpose_b)
        if problem.fmas > limit:
            return None
        if variant.unsupported(problem) is None:
            return problem
    return None
