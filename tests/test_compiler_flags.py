from __future__ import annotations

import pytest

from gemmlab.compiler_flags import check_flags
from gemmlab.errors import GemmlabError


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("-arch=sm_75", "architecture_suffix"),
        ("-arch=native", "architecture_suffix"),
        ("-arch", "architecture_suffix"),
        ("--gpu-architecture=compute_90", "architecture_suffix"),
        ("-gencode=arch=compute_80,code=sm_80", "architecture_suffix"),
        ("-code=sm_90", "architecture_suffix"),
        ("-o", "which file"),
        ("--output-file=x.ptx", "which file"),
        ("-cubin", "which file"),
        ("-ccbin=/usr/bin/g++-12", "machine"),
        ("-Xcompiler=-march=native", "machine"),
        ("-I/usr/include/eigen3", "machine"),
        ("-Iinclude", "machine"),
        ("-lcublas", "machine"),
        ("-DHEADER=/home/someone/x.h", "machine"),
        ("/home/someone/x.cu", "machine"),
        ("-Xptxas=-v", "ptxas_flags"),
        ("-maxrregcount=64", "ptxas_flags"),
    ],
)
def test_a_flag_that_is_refused_is_named_with_the_reason(flag: str, words: str) -> None:
    with pytest.raises(GemmlabError) as error:
        check_flags([flag], "a.yaml, variant x: compiler_flags")
    message = str(error.value)
    assert message.startswith("a.yaml, variant x: compiler_flags")
    assert repr(flag) in message
    assert words in message


@pytest.mark.parametrize(
    "flag", ["-use_fast_math", "-fmad=false", "-lineinfo", "--extra-device-vectorization", "-DN=1/2"]
)
def test_other_flags_pass(flag: str) -> None:
    check_flags([flag], "here")


def test_registers_are_limited_in_ptxas_flags() -> None:
    check_flags(["-maxrregcount=64", "-O3", "-dlcm=ca"], "here", ptxas=True)
    with pytest.raises(GemmlabError, match="architecture"):
        check_flags(["-arch=sm_80"], "here", ptxas=True)
