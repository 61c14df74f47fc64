"""What the configuration says about timing, and which shapes a variant is timed at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gemmlab.catalogue import Variant
from gemmlab.errors import GemmlabError

Shape = tuple[int, int, int]

# A launch over LONG_MS isn't timed hot, since caches decide nothing there, and keeps no clock up before the blocks.
LONG_MS = 50.0
# A launch over skip_over_ms, which only preset full times, gets this many blocks.
BLOCKS_OF_ENDLESS = 3
# Shapes that one process measures in preset full: what is done is kept if the next ones are interrupted.
SHAPES_A_SLICE = 6


@dataclass(frozen=True)
class Settings:
    """The bench part of the configuration; workflow/schemas/config.schema.json says what each field means."""

    preset: str
    seed: int
    headline_shape: Shape
    blocks: int
    full_blocks: int
    repeats: int
    warmup: int
    block_ms: float
    caches: tuple[str, ...]
    sizes: tuple[int, ...]
    hot_sizes: tuple[int, ...]
    full_sizes: tuple[int, ...]
    full_shapes: tuple[Shape, ...]
    skip_over_ms: float
    time_limit_s: float

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Settings from JSON: `preset`, `seed`, `headline_shape` and `bench` as they stand in the configuration.

        Raises:
            GemmlabError: it is no JSON or a key is missing.
        """
        try:
            given: dict[str, Any] = json.loads(text)
            merged = {key: value for key, value in given.items() if key != "bench"} | given["bench"]
            return cls(
                preset=merged["preset"],
                seed=merged["seed"],
                headline_shape=_shape(merged["headline_shape"]),
                blocks=merged["blocks"],
                full_blocks=merged["full_blocks"],
                repeats=merged["repeats"],
                warmup=merged["warmup"],
                block_ms=merged["block_ms"],
                caches=tuple(merged["caches"]),
                sizes=tuple(merged["sizes"]),
                hot_sizes=tuple(merged["hot_sizes"]),
                full_sizes=tuple(merged["full_sizes"]),
                full_shapes=tuple(_shape(shape) for shape in merged["full_shapes"]),
                skip_over_ms=merged["skip_over_ms"],
                time_limit_s=merged["time_limit_s"],
            )
        except json.JSONDecodeError as error:
            raise GemmlabError(f"--settings: not JSON ({error})") from error
        except KeyError as error:
            raise GemmlabError(
                f"--settings: lacks the key {error.args[0]}; expected preset, seed, headline_shape and bench with the "
                "keys of config/config.yaml."
            ) from error

    @property
    def full(self) -> bool:
        """Whether this is preset full."""
        return self.preset == "full"

    @property
    def present_blocks(self) -> int:
        """Blocks of a shape in this preset."""
        return self.full_blocks if self.full else self.blocks

    def shapes(self, variant: Variant) -> list[Shape]:
        """The shapes at which `variant` is timed, each once: squares, the headline, the variant's own."""
        chosen = [(edge, edge, edge) for edge in self.sizes]
        if self.full:
            chosen += [(edge, edge, edge) for edge in self.full_sizes]
            chosen += self.full_shapes
        return list(dict.fromkeys([*chosen, self.headline_shape, *variant.bench_shapes]))

    def caches_at(self, shape: Shape) -> tuple[str, ...]:
        """How `shape` is timed: cold, hot or both. Standard times some squares and the headline hot, full all."""
        edge = shape[0]
        hot = self.full or shape == self.headline_shape or (edge in self.hot_sizes and shape == (edge,) * 3)
        return tuple(cache for cache in self.caches if cache == "cold" or hot)

    def slices(self, variant: Variant) -> list[list[Shape]]:
        """The shapes cut into what one process measures: all at once in standard, 6 at a time in full."""
        shapes = self.shapes(variant)
        size = SHAPES_A_SLICE if self.full else len(shapes)
        return [shapes[start : start + size] for start in range(0, len(shapes), size)]


def _shape(values: list[int]) -> Shape:
    m, n, k = values
    return m, n, k
