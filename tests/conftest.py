from __future__ import annotations

import pytest

from gemmlab.catalogue import Variant, load_catalogue


@pytest.fixture(scope="session")
def catalogue() -> dict[str, Variant]:
    return load_catalogue()
