from __future__ import annotations

import dataclasses
import json

import pytest

from gemmlab.catalogue import Variant
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.timing.settings import Settings


def text(**changes) -> str:
    config = load_config()
    given = {key: config[key] for key in ("preset", "seed", "headline_shape", "bench")}
    return json.dumps(given | changes)


def test_the_configuration_gives_all_settings() -> None:
    settings = Settings.parse(text())
    assert settings.headline_shape == (4096, 4096, 4096)
    assert settings.present_blocks == settings.blocks >= 8


@pytest.mark.parametrize(
    ("given", "words"),
    [("{", "not JSON"), (text(bench={}), "lacks the key blocks"), ("{}", "lacks the key bench")],
)
def test_unusable_settings_are_named(given: str, words: str) -> None:
    with pytest.raises(GemmlabError, match=words):
        Settings.parse(given)


def test_standard_times_squares_the_headline_and_the_variant_s_own_once(
    catalogue: dict[str, Variant],
) -> None:
    variant = dataclasses.replace(catalogue["naive"], bench_shapes=((4096, 4096, 4096), (33, 44, 55)))
    settings = Settings.parse(text())
    shapes = settings.shapes(variant)
    assert shapes == [(edge, edge, edge) for edge in settings.sizes] + [(33, 44, 55)]
    assert settings.slices(variant) == [shapes]


def test_standard_times_few_shapes_hot_and_full_all(catalogue: dict[str, Variant]) -> None:
    standard, full = (Settings.parse(text(preset=preset)) for preset in ("standard", "full"))
    hot = [shape for shape in standard.shapes(catalogue["naive"]) if "hot" in standard.caches_at(shape)]
    assert hot == [(1024,) * 3, (4096,) * 3]
    assert all("cold" in standard.caches_at(shape) for shape in standard.shapes(catalogue["naive"]))
    assert "hot" not in standard.caches_at((1024, 1024, 512))
    assert {full.caches_at(shape) for shape in full.shapes(catalogue["naive"])} == {("cold", "hot")}
    assert dataclasses.replace(full, caches=("cold",)).caches_at((1024,) * 3) == ("cold",)


def test_full_adds_sizes_and_shapes_in_slices(catalogue: dict[str, Variant]) -> None:
    settings = Settings.parse(text(preset="full"))
    shapes = settings.shapes(catalogue["naive"])
    assert {(16384, 16384, 16384), (2047, 2047, 2047), (16, 11008, 4096)} <= set(shapes)
    assert len(shapes) == len(set(shapes))
    slices = settings.slices(catalogue["naive"])
    assert [shape for part in slices for shape in part] == shapes
    assert max(map(len, slices)) == 6
    assert settings.present_blocks == settings.full_blocks
