from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fake_gpu import Gpu, Kernel, make_cubin, view

from gemmlab.errors import GemmlabError
from gemmlab.executors.base import DeviceFault, Launch, NotLaunchable, Pointer, Scalar, Unavailable
from gemmlab.executors.cuda import CudaExecutor


@pytest.fixture
def cubin(tmp_path: Path) -> Path:
    path = tmp_path / "v.cubin"
    path.write_bytes(make_cubin(90, ["gemm", "reduce_parts"]))
    return path


def launch(
    *arguments, entry="gemm", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, cluster=(1, 1, 1)
) -> Launch:
    return Launch(entry, grid, block, shared_bytes, arguments, cluster)


def double_all(address: int, count: int) -> None:
    view(address, int(count))[:] *= 2


def test_runs_launches_in_order_and_changes_the_buffers_in_place(gpu: Gpu, cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(double_all)
    gpu.kernels["reduce_parts"] = Kernel(lambda address, count: view(address, int(count)).__iadd__(1))
    buffers = {"a": np.arange(5, dtype=np.float32)}
    arguments = (Pointer("a"), Scalar("int32", 5))
    execution = CudaExecutor(cubin).run(
        [launch(*arguments), launch(*arguments, entry="reduce_parts")], buffers
    )
    assert buffers["a"].tolist() == [1, 3, 5, 7, 9]
    assert execution.findings == ()


def test_scalars_reach_the_kernel_in_their_declared_type(gpu: Gpu, cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(lambda *arguments: None)
    arguments = (Scalar("float32", 1), Scalar("int32", 7), Scalar("int64", 2**40), Pointer("a"))
    CudaExecutor(cubin).run([launch(*arguments)], {"a": np.zeros(4, np.float32)})
    passed = gpu.launched[0][2]
    assert [type(value) for value in passed] == [np.float32, np.int32, np.int64, np.uint64]
    assert passed[3] % 256 == 0


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (4, "4 bytes after its end, the nearest 0 bytes away"),
        (-2, "4 bytes before its start, the nearest 4 bytes away"),
    ],
)
def test_overwritten_guard_bands_are_found_with_buffer_and_side(
    gpu: Gpu, cubin: Path, offset: int, words: str
) -> None:
    def stray(address: int) -> None:
        view(int(address) + 4 * offset, 1)[:] = 1.0

    gpu.kernels["gemm"] = Kernel(stray)
    execution = CudaExecutor(cubin).run([launch(Pointer("c"))], {"c": np.zeros(4, np.float32)})
    (finding,) = execution.findings
    assert finding.kind == "guard_overwritten"
    assert finding.message == f"buffer c: {words}"


def test_what_lies_beyond_a_buffer_reads_as_nan(gpu: Gpu, cubin: Path) -> None:
    def reads_one_too_many(address: int) -> None:
        values = view(address, 5)
        values[0] = values[4]

    gpu.kernels["gemm"] = Kernel(reads_one_too_many)
    buffers = {"a": np.zeros(4, np.float32)}
    CudaExecutor(cubin).run([launch(Pointer("a"))], buffers)
    assert np.isnan(buffers["a"][0])


def test_a_fault_names_the_entry_and_cuda_words_and_stays(gpu: Gpu, cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(double_all)
    gpu.kernels["reduce_parts"] = Kernel(double_all, fault="cudaErrorMisalignedAddress: misaligned address")
    executor = CudaExecutor(cubin)
    arguments = (Pointer("a"), Scalar("int32", 1))
    with pytest.raises(
        DeviceFault, match=r"^reduce_parts: misaligned address \(cudaErrorMisalignedAddress\)$"
    ):
        executor.run(
            [launch(*arguments), launch(*arguments, entry="reduce_parts")], {"a": np.ones(1, np.float32)}
        )
    with pytest.raises(DeviceFault, match="lost before: reduce_parts: misaligned"):
        executor.run([launch(*arguments)], {"a": np.ones(1, np.float32)})


def test_a_launch_that_the_driver_refuses_is_not_launchable(gpu: Gpu, cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(double_all, refusal="CUDA_ERROR_INVALID_VALUE: invalid argument")
    with pytest.raises(NotLaunchable, match=r"gemm: .*invalid argument \(CUDA_ERROR_INVALID_VALUE\)"):
        CudaExecutor(cubin).run([launch()], {})


def test_a_misspelt_entry_lists_what_the_file_has(gpu: Gpu, cubin: Path) -> None:
    with pytest.raises(
        NotLaunchable, match=r"kernel gem not found in .*v\.cubin; found: gemm, reduce_parts\."
    ):
        CudaExecutor(cubin).run([launch(entry="gem")], {})


@pytest.mark.parametrize(("number", "abi_version"), [(75, 7), (75, 8), (80, 8), (100, 8)])
def test_a_cubin_for_other_gpus_is_refused_before_loading(
    gpu: Gpu, tmp_path: Path, number: int, abi_version: int
) -> None:
    path = tmp_path / "old.cubin"
    path.write_bytes(make_cubin(number, ["gemm"], abi_version))
    with pytest.raises(NotLaunchable, match=f"built for sm_{number}, device is 9.0; compile for sm_90"):
        CudaExecutor(path)


def test_a_file_that_is_no_cubin_is_refused(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "empty.cubin"
    path.write_bytes(b"")
    with pytest.raises(GemmlabError, match="no ELF header"):
        CudaExecutor(path)


@pytest.mark.parametrize(
    ("static", "dynamic", "set_to"),
    [(0, 49151, 0), (0, 49152, 0), (0, 49153, 49153), (4, 49148, 0), (4, 49149, 49149), (232447, 1, 1)],
)
def test_shared_memory_is_opted_in_once_the_sum_passes_48_kib(
    gpu: Gpu, cubin: Path, static: int, dynamic: int, set_to: int
) -> None:
    gpu.kernels["gemm"] = Kernel(lambda: None, shared_size_bytes=static)
    CudaExecutor(cubin).run([launch(shared_bytes=dynamic)], {})
    assert gpu.kernels["gemm"].max_dynamic_shared_size_bytes == set_to
    assert gpu.launched[0][3] == dynamic


def test_a_smaller_launch_takes_no_shared_memory_back(gpu: Gpu, cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(lambda: None)
    executor = CudaExecutor(cubin)
    executor.prepare([launch(shared_bytes=100_000)], {})
    executor.prepare([launch(shared_bytes=60_000)], {})
    assert gpu.kernels["gemm"].max_dynamic_shared_size_bytes == 100_000


def test_shared_memory_over_the_limit_is_refused_with_both_numbers(gpu: Gpu, cubin: Path) -> None:
    gpu.kernels["gemm"] = Kernel(lambda: None, shared_size_bytes=1000)
    with pytest.raises(
        NotLaunchable, match=r"needs 232449 bytes .*1000 static, 231449 dynamic.*allows 232448"
    ):
        CudaExecutor(cubin).run([launch(shared_bytes=231449)], {})


def test_a_buffer_that_does_not_fit_is_refused_with_the_numbers(gpu: Gpu, cubin: Path) -> None:
    gpu.free_bytes = 10_000
    with pytest.raises(Unavailable, match="4000 bytes doesn't fit: 10000 of the device's"):
        CudaExecutor(cubin).run([launch(Pointer("a"))], {"a": np.zeros(1000, np.float32)})


def test_without_cupy_or_gpu_the_executor_is_unavailable(
    gpu: Gpu, cubin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["cupy"].cuda, "is_available", lambda: False)
    with pytest.raises(Unavailable, match="no CUDA device"):
        CudaExecutor(cubin)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unavailable, match="CuPy can't be imported"):
        CudaExecutor(cubin)
