from __future__ import annotations

from pathlib import Path

from gemmlab import ptx

TEXT = rb"""
.version 9.0
.target sm_90a
.visible .entry gemm(
)
{
	.loc	1 7 3
	mov.u32 %r1, %r2;
	.loc	2 4 1
	bad.u32 %r1;
}
.entry _Z5otheri()
	.file	1 "/home/someone/proj\303\251t x/kernels/01_naive.cu"
	.file	2 "/home/someone/proj\303\251t x/kernels/common/load.cuh"
	.file	3 "/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/crt/mma.hpp"
	.file	4 "/home/someone/proj\303\251t x/.venv/lib/python3.11/site-packages/nvidia/cu13/include/cuda_fp16.hpp"
	.file	5 "/tmp/odd.h"
"""
ROOT = Path("/home/someone/projét x")


def test_entries_and_target() -> None:
    assert ptx.entry_names(TEXT) == ["gemm", "_Z5otheri"]
    assert ptx.target(TEXT) == "sm_90a"
    assert ptx.target(b"") is None


def test_no_folder_of_the_machine_stays_in_file_lines() -> None:
    text = ptx.relative_file_lines(TEXT, ROOT)
    for name in (
        b'1 "kernels/01_naive.cu"',
        b'2 "kernels/common/load.cuh"',
        b'3 "include/crt/mma.hpp"',
        b'4 "include/cuda_fp16.hpp"',
        b'5 "odd.h"',
    ):
        assert b".file\t" + name in text
    assert b"/home" not in text
    assert b"/usr" not in text
    assert text.startswith(TEXT.split(b"\t.file")[0])


def test_a_name_keeps_its_accent_and_what_follows_it() -> None:
    text = b'\t.file\t1 "/r/kernels/\\303\\251.cu", 17, 42\n'
    assert ptx.relative_file_lines(text, Path("/r")) == b'\t.file\t1 "kernels/\\303\\251.cu", 17, 42\n'


def test_a_line_of_ptx_leads_to_its_source() -> None:
    text = ptx.relative_file_lines(TEXT, ROOT)
    bad = text.splitlines().index(b"\tbad.u32 %r1;") + 1
    assert ptx.source_location(text, bad) == "kernels/common/load.cuh:4"
    assert ptx.source_location(text, bad - 2) == "kernels/01_naive.cu:7"
    assert ptx.source_location(text, 3) is None
