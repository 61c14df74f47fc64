from __future__ import annotations

import contextlib
import json
import types
from dataclasses import replace

import numpy as np
import pytest

from gemmlab import launch_once
from gemmlab.executors.base import DeviceFault, NotLaunchable, Unavailable
from gemmlab.launch_once import Prepared
from gemmlab.problem import Problem


class CudaError(Exception):
    pass


class FakeMemory:
    def __init__(self, cupy, size):
        self.size, self.ptr, self.content = size, 4096 * (1 + len(cupy.allocated)), None

    def copy_from_host(self, address, size):
        assert size == self.size
        self.content = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_uint8 * size).from_address(address)
        ).copy()


class FakeCupy:
    """The few parts of CuPy that launch_once uses, with a log of what happened."""

    def __init__(self, limit=2**40):
        self.allocated, self.log, self.limit = [], [], limit
        self.cuda = types.SimpleNamespace(
            alloc=self.alloc,
            set_allocator=lambda allocator: self.log.append(f"allocator {allocator}"),
            Stream=self.stream,
            driver=types.SimpleNamespace(CUDADriverError=CudaError),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CudaError,
                profilerStart=lambda: self.log.append("start"),
                profilerStop=lambda: self.log.append("stop"),
            ),
        )

    def alloc(self, size):
        if size > self.limit:
            raise CudaError("cudaErrorMemoryAllocation: out of memory")
        self.allocated.append(FakeMemory(self, size))
        return self.allocated[-1]

    @contextlib.contextmanager
    def stream(self):
        self.log.append("stream")
        yield


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy()

    monkeypatch.setattr(launch_once, "load_cupy", lambda: fake)
    monkeypatch.setattr(launch_once.driver, "device_uuid", lambda device: "GPU-1")
    monkeypatch.setattr(
        launch_once,
        "hold_gpu",
        lambda uuid, shared: fake.log.append(f"shares {uuid}" if shared else f"holds {uuid}"),
    )
    return fake


class FakeLauncher:
    def __init__(self, cupy, fault=None):
        self.cupy, self.fault = cupy, fault

    def prepare(self, problem, seed):
        if isinstance(self.fault, NotLaunchable) and problem.m > 64:
            raise self.fault
        return Prepared(["gemm"], self.run, {})

    def run(self):
        if isinstance(self.fault, DeviceFault):
            raise self.fault
        self.cupy.log.append("launch")


def launch(cupy, variant, shapes, launcher=None, **options):
    options = {"warmup": 2, "repeat": 1, "seed": 0, "beta": 0.0, "skip_over_ms": None} | options
    return launch_once.launch_shapes(cupy, variant, launcher or FakeLauncher(cupy), shapes, **options)


def test_only_launches_after_the_warm_up_are_profiled(cupy, catalogue):
    done = launch(cupy, catalogue["tile16"], [(64, 64, 64), (32, 16, 8)])
    once = ["stream", "launch", "launch", "start", "launch", "stop"]
    assert cupy.log == once * 2
    assert done[1] == {"m": 32, "n": 16, "k": 8, "entries": ["gemm"], "skipped": None}


def test_what_cannot_be_launched_is_skipped_with_the_reason_and_the_rest_goes_on(cupy, catalogue):
    variant = replace(catalogue["tile16"], constraints=("k % 4 == 0",))
    launcher = FakeLauncher(cupy, NotLaunchable("needs 300 KiB"))
    done = launch(cupy, variant, [(64, 64, 6), (128, 64, 64), (64, 64, 64)], launcher)
    assert "k % 4" in done[0]["skipped"]
    assert done[1]["skipped"] == "not launchable: needs 300 KiB"
    assert done[2]["skipped"] is None


def test_a_slow_shape_is_not_profiled(cupy, catalogue, monkeypatch):
    monkeypatch.setattr(launch_once, "_milliseconds", lambda run: 812.0)
    (shape,) = launch(cupy, catalogue["tile16"], [(64, 64, 64)], skip_over_ms=500)
    assert shape["skipped"] == "a launch takes 812 ms, over the limit of 500 ms"
    assert "start" not in cupy.log


def test_a_slow_first_launch_which_loads_the_code_skips_nothing(cupy, catalogue, monkeypatch):
    taken = iter([812.0, 3.0])
    monkeypatch.setattr(launch_once, "_milliseconds", lambda run: next(taken))
    (shape,) = launch(cupy, catalogue["tile16"], [(64, 64, 64)], warmup=1, skip_over_ms=500)
    assert shape["skipped"] is None
    assert cupy.log == ["stream", "start", "launch", "stop"]


def test_buffers_are_exact_and_what_the_problem_leaves_open_stays_uninitialised(cupy, catalogue):
    variant = replace(catalogue["tile16"], workspace={"partial": {"elements": "m * n"}}, separate_output=True)
    buffers = launch_once.allocate_buffers(cupy, variant, Problem.packed(5, 7, 3), 1, 132)
    assert {name: buffer.memory.size for name, buffer in buffers.items()} == {
        "a": 60,
        "b": 84,
        "c": 140,
        "d": 140,
        "partial": 140,
    }
    filled = [name for name, buffer in buffers.items() if buffer.memory.content is not None]
    assert filled == ["a", "b"]
    a = buffers["a"].memory.content.view(np.float32)
    assert (abs(a) <= 1).all()
    assert len(set(a)) == 15


def test_beta_makes_c_defined_and_the_seed_decides_the_data(cupy, catalogue):
    variant = catalogue["tile16"]

    def content(seed, beta=0.5):
        buffers = launch_once.allocate_buffers(cupy, variant, Problem.packed(5, 7, 3, beta=beta), seed, 132)
        return {name: buffer.memory.content for name, buffer in buffers.items()}

    assert content(1)["c"] is not None
    assert np.array_equal(content(1)["a"], content(1)["a"])
    assert not np.array_equal(content(1)["a"], content(2)["a"])


def test_half_precision_inputs_take_half_the_bytes(cupy, catalogue):
    buffers = launch_once.allocate_buffers(cupy, catalogue["cublas_bf16"], Problem.packed(4, 4, 4), 1, 132)
    assert [buffers[name].memory.size for name in "abc"] == [32, 32, 64]


def test_memory_that_is_not_there_is_a_reason(catalogue):
    with pytest.raises(NotLaunchable, match="buffer a of 262144 elements: out of memory"):
        launch_once.allocate_buffers(
            FakeCupy(limit=1000), catalogue["tile16"], Problem.packed(512, 512, 512), 1, 132
        )


def run_main(monkeypatch, cupy, words, fault=None):
    monkeypatch.setattr(launch_once, "_Kernel", lambda *_: FakeLauncher(cupy, fault))
    return launch_once.main(words)


WORDS = ["--variant", "tile16", "--cubin", "v.cubin", "--warmup", "0"]


def test_main_turns_the_pool_off_and_says_what_was_launched(cupy, monkeypatch, tmp_path):
    launches = tmp_path / "launches.json"
    words = launch_once.command(
        "tile16", [(64, 64, 64)], cubin=tmp_path / "v.cubin", warmup=0, launches=launches, skip_over_ms=5.0
    )
    assert words[1:3] == ["-m", "gemmlab.launch_once"]
    assert run_main(monkeypatch, cupy, words[3:]) == 0
    assert cupy.log == ["holds GPU-1", "allocator None", "stream", "start", "launch", "stop"]
    said = json.loads(launches.read_text())
    assert said["gpu_uuid"] == "GPU-1"
    assert said["shapes"][0]["entries"] == ["gemm"]


def test_launches_that_are_only_looked_at_share_the_gpu(cupy, monkeypatch, tmp_path):
    words = launch_once.command("tile16", [(64, 64, 64)], cubin=tmp_path / "v.cubin", share=True)
    assert run_main(monkeypatch, cupy, words[3:]) == 0
    assert cupy.log[0] == "shares GPU-1"


def test_main_ends_with_a_message_and_its_own_status(cupy, monkeypatch, capsys):
    refused = NotLaunchable("needs 300 KiB")
    assert run_main(monkeypatch, cupy, [*WORDS, "--shape", "65,65,65"], refused) == 3
    assert "needs 300 KiB" in capsys.readouterr().err
    assert run_main(monkeypatch, cupy, [*WORDS, "--shape", "64,64,64"], DeviceFault("gemm: misaligned")) == 2
    assert capsys.readouterr().err == "gemm: misaligned\n"
    assert run_main(monkeypatch, cupy, ["--variant", "none", *WORDS[2:], "--shape", "64,64,64"]) == 2
    assert "none" in capsys.readouterr().err


def test_no_device_is_a_message(monkeypatch, capsys):
    def absent():
        raise Unavailable("CuPy sees no CUDA device")

    monkeypatch.setattr(launch_once, "load_cupy", absent)
    assert launch_once.main([*WORDS, "--shape", "64,64,64"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "1,2,3,4", "1.5,2,3"])
def test_bad_shapes_are_refused(text):
    with pytest.raises(SystemExit):
        launch_once.main([*WORDS, "--shape", text])


def test_a_kernel_needs_a_cubin_and_a_baseline_none(tmp_path):
    with pytest.raises(SystemExit):
        launch_once.main(["--variant", "tile16", "--shape", "1,1,1"])
    words = launch_once.command("cublas_fp32", [(8, 8, 8)], cubin=None)
    assert words[words.index("--kind") + 1] == "baseline"
    assert "--cubin" not in words
