from __future__ import annotations

import pytest

from gemmlab import cli
from gemmlab.catalogue import load_catalogue
from gemmlab.config import load_config
from gemmlab.publish_run import tree_digests
from gemmlab.schema import read_table
from gemmlab.static_evidence import ARCHITECTURES, VARIANTS


def test_the_variants_are_kernels_of_the_catalogue(catalogue):
    assert [name for name in VARIANTS if name not in catalogue or catalogue[name].kind != "kernel"] == []
    assert ARCHITECTURES == ("sm_80", "sm_86", "sm_90", "sm_100")


def test_each_architecture_is_compiled_for_and_has_its_own_limits(tmp_path):
    output = tmp_path / "static.csv"
    words = ["--variants", "tile32", "register16x16", "--architectures", "sm_86", "sm_90"]
    assert cli.main(["static-evidence", *words, "--output", str(output)]) == 0
    table = read_table(output, "static").set_index(["variant", "architecture"])
    assert list(table["status"].unique()) == ["ok"]
    assert list(table.index) == [(v, a) for v in ("tile32", "register16x16") for a in ("sm_86", "sm_90")]
    # 1024 threads a block: an SM of 8.6 has room for 1536, one of 9.0 for 2048.
    ampere, hopper = table.loc[("tile32", "sm_86")], table.loc[("tile32", "sm_90")]
    assert (ampere["threads"], ampere["shared_static_bytes"]) == (1024, 8192)
    assert (ampere["blocks_per_sm"], round(ampere["occupancy"], 3)) == (1, 0.667)
    assert ampere["occupancy_limit"].startswith("threads")
    assert (hopper["blocks_per_sm"], hopper["occupancy"]) == (2, 1.0)
    assert table.loc[("register16x16", "sm_90")]["spill_bytes"] > 0
    # Whichever nvcc compiled, the tree repeats the digests; the column nvcc says which.
    present = tree_digests(load_config(), load_catalogue())
    rows = table.reset_index().to_dict("records")
    assert [row["digest"] for row in rows] == [present("static", row) for row in rows]
    assert table["digest"].nunique() == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--variants", "tile99"], "tile99: no kernel of this name"),
        (["--variants", "cublas_fp32"], "cublas_fp32: no kernel of this name"),
        (["--variants", "naive", "--architectures", "sm_1"], "architecture is 'sm_1'"),
    ],
)
def test_mistakes_are_named(tmp_path, capsys, words, message):
    output = tmp_path / "static.csv"
    assert cli.main(["static-evidence", *words, "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()
