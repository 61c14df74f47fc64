"""The front end: arguments, buffers, limits, and what it says when something is missing."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from ptx_pieces import WARP, entry, launch, run_once

from gemmlab import emulator_build
from gemmlab.errors import GemmlabError
from gemmlab.executors import open_executor
from gemmlab.executors.base import Launch, NotLaunchable, Pointer, Scalar, TensorMap, Unavailable
from gemmlab.executors.emulator import EmulatorExecutor

STORE_SCALAR = """ld.param.u64 %rd0, [p0]; ld.param.u32 %r1, [p1]; ld.param.f32 %f1, [p2]; ld.param.u64 %rd1, [p3];
    st.global.u32 [%rd0], %r1; st.global.f32 [%rd0+4], %f1; st.global.u64 [%rd0+8], %rd1;"""


def test_scalars_are_converted_by_kind(load):
    executor = load(entry("u64 u32 f32 u64", STORE_SCALAR))
    out = np.zeros(4, np.uint32)
    scalars = (Scalar("int32", -3), Scalar("float32", 1), Scalar("int64", -(2**40)))
    run_once(executor, launch("out", *scalars, block=(1, 1, 1)), {"out": out})
    assert out[:1].view(np.int32)[0] == -3
    assert out[1:2].view(np.float32)[0] == 1.0
    assert out[2:].view(np.int64)[0] == -(2**40)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Pointer("out"),), "entry kernel takes 4 arguments, given 1"),
        ((Pointer("out"), Scalar("int64", 1), Scalar("float32", 1), Scalar("int64", 1)), "has 8 bytes"),
        ((Pointer("out"), Scalar("int32", 2**31), Scalar("float32", 1), Scalar("int64", 1)), "is no int32"),
        (
            (Pointer("in"), Scalar("int32", 1), Scalar("float32", 1), Scalar("int64", 1)),
            "points to buffer in; given: out",
        ),
        (
            (Pointer("out"), Scalar("int32", 1), Scalar("float32", 1), Pointer("lost")),
            "points to buffer lost",
        ),
    ],
)
def test_arguments_that_do_not_fit(load, arguments, message):
    executor = load(entry("u64 u32 f32 u64", STORE_SCALAR))
    with pytest.raises(GemmlabError, match=message):
        run_once(executor, launch(*arguments), {"out": np.zeros(4, np.uint32)})


def test_tensor_maps_are_refused_by_name(load):
    executor = load(entry("u64", ""))
    with pytest.raises(Unavailable, match="TensorMap"):
        run_once(executor, launch(TensorMap("A", 8, 8, 8, 8, 8)), {"A": np.zeros(64, np.float16)})


def test_buffers_must_be_contiguous_writeable_arrays(load):
    executor = load(entry("u64", ""))
    with pytest.raises(GemmlabError, match="buffer A isn't contiguous"):
        run_once(executor, launch("A"), {"A": np.zeros((4, 4), np.float32)[:, 1]})
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(GemmlabError, match="buffer A is read-only"):
        run_once(executor, launch("A"), {"A": frozen})
    with pytest.raises(GemmlabError, match="buffer A is a list"):
        run_once(executor, launch("A"), {"A": [1.0]})


def test_unknown_instruction_is_quoted(load):
    for text in (
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [texture, {%r1}]",
        "add.rz.sat.wild.f32 %f1, %f2, %f3",
    ):
        executor = load(entry("u64", f"{text};"))
        with pytest.raises(Unavailable) as raised:
            run_once(executor, launch("A"), {"A": np.zeros(4, np.float32)})
        assert text in str(raised.value)
    # An entry that is never launched may hold anything.
    both = load(
        entry("u64", "tex.1d nothing;", name="first") + entry("u64", "", name="second").split("\n", 3)[3]
    )
    assert both.entries == ("first", "second")
    run_once(both, launch("A", name="second"), {"A": np.zeros(4, np.float32)})


def test_missing_entry_and_file(load, tmp_path, library):
    executor = load(entry("u64", "", name="gemm"))
    with pytest.raises(GemmlabError, match=r"kernel gemn not found in .*1\.ptx; found: gemm"):
        run_once(executor, launch("A", name="gemn"), {"A": np.zeros(4, np.float32)})
    with pytest.raises(GemmlabError, match=r"nowhere\.ptx: can't be read"):
        EmulatorExecutor(tmp_path / "nowhere.ptx", library=library)
    with pytest.raises(GemmlabError, match="PTX ends in the middle"):
        load(entry("u64", "")[:-10])


@pytest.mark.parametrize(
    ("flags", "widths"),
    [
        ((), {8: 1}),
        (("-O3",), {8: 1}),
        (("-maxrregcount=10",), {8: 1}),
        (("-O0",), {4: 2}),
        (("-v", "--opt-level=0"), {4: 2}),
        (("-O", "0"), {4: 2}),
    ],
)
def test_ptxas_flags_decide_whether_accesses_are_joined(tmp_path, flags, widths):
    body = "mov.u32 %r1, tile; ld.shared.f32 %f1, [%r1]; ld.shared.f32 %f2, [%r1+4];"
    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(entry("u64", body, module=".shared .align 16 .b8 tile[64];\n"), encoding="utf-8")
    executor = open_executor("emulator", ptx, tmp_path / "kernel.cubin", flags)
    assert executor.shared_widths("kernel") == (widths, {})


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"grid": (0, 1, 1)}, "grid 0 x 1 x 1"),
        ({"block": (32, 0, 1)}, "block 32 x 0 x 1"),
        ({"block": (1025, 1, 1)}, "1025 threads; the limit is 1024"),
        ({"block": (257, 1, 1)}, "257 threads; the kernel's __launch_bounds__ allow 256"),
        ({"block": (1, 1, 65)}, r"block\.z is 65; the limit is 64"),
        ({"grid": (1, 65536, 1)}, "the limit is"),
        (
            {"shared_bytes": 227 * 1024 - 63},
            r"232449 bytes of shared memory \(64 static, 232385 dynamic\); the limit is 232448",
        ),
        ({"grid": (-1, 1, 1)}, "three dimensions"),
    ],
)
def test_limits_of_the_device(load, shape, message):
    executor = load(
        entry(
            "u64",
            "mov.u32 %r1, fixed; mov.u32 %r2, dynamic;",
            module=".shared .align 4 .b8 fixed[64];\n.extern .shared .align 16 .b8 dynamic[];\n",
            directives=".maxntid 256, 1, 1",
        )
    )
    with pytest.raises(NotLaunchable, match=message):
        run_once(executor, launch("A", **shape), {"A": np.zeros(4, np.float32)})
    run_once(executor, launch("A", shared_bytes=227 * 1024 - 64), {"A": np.zeros(4, np.float32)})


def test_clusters_are_refused(load):
    executor = load(entry("u64", ""))
    with pytest.raises(Unavailable, match="clusters"):
        executor.run(
            [Launch("kernel", (2, 1, 1), (32, 1, 1), 0, (Pointer("A"),), cluster=(2, 1, 1))],
            {"A": np.zeros(4, np.float32)},
        )


def test_launches_see_each_other_and_buffers_keep_apart(load):
    executor = load(
        entry(
            "u64",
            """ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.u32 %r1, [%rd1];
            mad.lo.u32 %r1, %r1, 3, 1; st.global.u32 [%rd1], %r1;""",
        )
    )
    a, b = np.arange(WARP, dtype=np.uint32), np.arange(WARP, dtype=np.uint32)
    execution = executor.run([launch("a")] * 3, {"a": a, "b": b})
    assert not execution.findings
    np.testing.assert_array_equal(a, 27 * np.arange(WARP) + 13)
    np.testing.assert_array_equal(b, np.arange(WARP))


def test_findings_do_not_outlive_a_run(load):
    executor = load(entry("u64", "ld.param.u64 %rd0, [p0]; ld.global.f32 %f1, [%rd0+16];"))
    short, long = {"A": np.zeros(4, np.float32)}, {"A": np.zeros(5, np.float32)}
    assert len(run_once(executor, launch("A"), short).findings) == 1
    assert not run_once(executor, launch("A"), long).findings
    assert len(executor.run([launch("A"), launch("A")], short).findings) == 1


def test_the_library_is_built_once_for_its_content(tmp_path, monkeypatch, library):
    monkeypatch.setenv(emulator_build.OUTPUT_VARIABLE, str(tmp_path))
    calls = []

    def pretend(compiler, flags, path: Path):
        calls.append(path)
        path.write_bytes(b"library")

    monkeypatch.setattr(emulator_build, "_compile", pretend)
    threads = [threading.Thread(target=emulator_build.library) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert emulator_build.library() == calls[0]
    assert emulator_build.build(tmp_path, target="portable").name.startswith("libptx_emulator-portable-")
    assert len(calls) == 2


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        GemmlabError, match=r"no C\+\+ compiler: looked for g\+\+, c\+\+, clang\+\+ on PATH; install"
    ):
        emulator_build.build(tmp_path)


def test_a_failing_build_says_why(tmp_path, monkeypatch):
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(GemmlabError, match="no space left"):
        emulator_build.build(tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.so"))
