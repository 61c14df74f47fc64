from __future__ import annotations

from pathlib import Path

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.sass import instruction_mix, parse_mix
from gemmlab.toolchain import find_nvdisasm

CASES = Path(__file__).parent / "cases"


def test_widths_are_kept_and_other_modifiers_are_not() -> None:
    mix = parse_mix((CASES / "nvdisasm_sm_90.txt").read_text())["gemm"]
    expected = {"LDG.128": 1, "LDG.U16": 1, "LDG.U8": 1, "STS.128": 1, "STS.64": 1, "LDS.128": 1, "LDS.64": 2}
    assert {name: mix[name] for name in expected} == expected
    assert mix["LDGSTS.128"] == mix["STG.128"] == mix["BAR"] == 1
    assert mix["FFMA"] == 58
    assert next(iter(mix)) == "FFMA"


def test_loads_that_never_execute_are_not_counted() -> None:
    # Three `@!PT LDS RZ, [RZ]` stand in the listing, where the source has no 32-bit shared load.
    assert "LDS" not in parse_mix((CASES / "nvdisasm_sm_90.txt").read_text())["gemm"]


def test_padding_is_not_counted_but_loops_are() -> None:
    listing = """.text.gemm:
.L_x_0:
        /*0000*/                   FFMA R0, R1, R2, R0 ;
        /*0010*/                   NOP ;
        /*0020*/               @P0 BRA `(.L_x_0) ;
        /*0030*/                   EXIT ;
.L_x_1:
        /*0040*/                   BRA `(.L_x_1);
        /*0050*/                   NOP;
        /*0060*/                   NOP;
.L_x_2:
.text.other:
        /*0000*/              @!P1 LDG.E.CONSTANT R0, desc[UR4][R2.64] ;
        /*0010*/                   EXIT ;
"""
    assert parse_mix(listing) == {
        "gemm": {"FFMA": 1, "NOP": 1, "BRA": 1, "EXIT": 1},
        "other": {"LDG": 1, "EXIT": 1},
    }


def test_a_file_that_is_no_cubin_is_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "x.cubin"
    path.write_bytes(b"not a cubin")
    nvdisasm = find_nvdisasm()
    assert nvdisasm is not None, "the lock brings nvdisasm"
    with pytest.raises(GemmlabError, match="nvdisasm ended with status"):
        instruction_mix(path, nvdisasm)
