from __future__ import annotations

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.live_run import announce


def test_a_live_run_keeps_its_lock(tmp_path):
    with (
        announce(tmp_path, unlocking=False),
        announce(tmp_path, unlocking=False),
        pytest.raises(GemmlabError, match="a run is going on here"),
    ):
        announce(tmp_path, unlocking=True)
    with announce(tmp_path, unlocking=True), pytest.raises(GemmlabError, match="is being unlocked"):
        announce(tmp_path, unlocking=False)
    announce(tmp_path, unlocking=False).close()
