"""Whole kernels as nvcc compiles them: right, quiet where they are correct, and found out where they are not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from ptx_pieces import launch

from gemmlab import sass, toolchain
from gemmlab.executors.emulator import EmulatorExecutor

PARAMETERS = (
    "int m, int n, int k, float alpha, const float* __restrict__ a, "
    "const float* __restrict__ b, float beta, float* c"
)
END = "c[row * n + column] = alpha * sum + (beta == 0 ? 0.0f : beta * c[row * n + column]);"
SOURCES = {
    "naive": f"""
extern "C" __global__ void gemm({PARAMETERS}) {{
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    {END}
}}
""",
    "tile": f"""
extern "C" __global__ void gemm({PARAMETERS}) {{
    __shared__ float a_tile[16][16], b_tile[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int first = 0; first < k; first += 16) {{
        a_tile[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;
        b_tile[y][x] = first + y < k && column < n ? b[(first + y) * n + column] : 0.0f;
        FIRST_BARRIER
        for (int i = 0; i < 16; ++i) sum += a_tile[y][i] * b_tile[i][x];
        SECOND_BARRIER
    }}
    if (row BOUND m && column < n) {END}
}}
""",
    "reduction": f"""
extern "C" __global__ void gemm({PARAMETERS}) {{
    __shared__ float part[4];
    int row = blockIdx.y, column = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0;
    for (int i = threadIdx.x; i < k; i += 128) sum += a[row * k + i] * b[i * n + column];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    sum = part[0] + part[1] + part[2] + part[3];
    {END}
}}
""",
    "register_tile": """
extern "C" __global__ void __launch_bounds__(256) gemm(PARAMETERS) {
    __shared__ float a_tile[8][64], b_tile[8][64];
    int thread = threadIdx.y * 16 + threadIdx.x, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int first = 0; first < k; first += 8) {
        for (int i = thread; i < 512; i += 256) {
            int r = i / 8, p = i % 8;
            a_tile[p][r] = row0 + r < m && first + p < k ? a[(row0 + r) * k + first + p] : 0.0f;
            r = i % 64, p = i / 64;
            b_tile[p][r] = first + p < k && column0 + r < n ? b[(first + p) * n + column0 + r] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int p = 0; p < 8; ++p)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j)
                    sums[i][j] += a_tile[p][threadIdx.y * 4 + i] * b_tile[p][threadIdx.x * 4 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            int row = row0 + threadIdx.y * 4 + i, column = column0 + threadIdx.x * 4 + j;
            float sum = sums[i][j];
            if (row < m && column < n) END
        }
}
""".replace("PARAMETERS", PARAMETERS).replace("END", END),
}
SHAPES = [(1, 1, 1), (16, 16, 16), (17, 33, 5), (35, 79, 19), (64, 64, 64)]


def grid_and_block(name: str, m: int, n: int):
    if name == "reduction":
        return (n, m, 1), (128, 1, 1)
    tile = 64 if name == "register_tile" else 16
    return (-(-n // tile), -(-m // tile), 1), (16, 16, 1)


@pytest.fixture(scope="module")
def nvcc():
    return toolchain.find_nvcc()  # the lock brings one, so its absence is a fault and no reason to skip


@pytest.fixture(scope="module")
def compiled(nvcc, library, tmp_path_factory):
    """Give a function that compiles a source and loads its PTX."""
    folder = tmp_path_factory.mktemp("kernels")
    loaded: dict[tuple, EmulatorExecutor] = {}

    def compile_source(
        name: str, *, first=True, second=True, bound="<", architecture="90"
    ) -> EmulatorExecutor:
        key = (name, first, second, bound, architecture)
        if key not in loaded:
            source = folder / f"{name}.cu"
            barrier = "__syncthreads();"
            source.write_text(
                SOURCES[name]
                .replace("FIRST_BARRIER", barrier if first else "")
                .replace("SECOND_BARRIER", barrier if second else "")
                .replace("BOUND", bound),
                encoding="utf-8",
            )
            ptx = folder / ("_".join(map(str, key)) + ".ptx")
            subprocess.run(
                [nvcc.path, "-ptx", "-lineinfo", f"-arch=compute_{architecture}", "-o", ptx, source],
                check=True,
            )
            loaded[key] = EmulatorExecutor(ptx, library=library)
        return loaded[key]

    return compile_source


def gemm(name: str, executor, m: int, n: int, k: int, *, beta=-0.5, **options):
    rng = np.random.default_rng(m + n + k)
    a, b, c = (rng.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
    wide = np.float64
    wanted = 0.75 * (a.astype(wide) @ b.astype(wide)) + (beta * c.astype(wide) if beta else 0)
    if not beta:
        c[:] = np.nan
    bound = (k + 2) * 2.0**-24 * (np.abs(a).astype(wide) @ np.abs(b).astype(wide)) + 1e-6
    grid, block = grid_and_block(name, m, n)
    launched = launch(m, n, k, 0.75, "a", "b", float(beta), "c", name="gemm", grid=grid, block=block)
    buffers = {"a": a.reshape(-1), "b": b.reshape(-1), "c": c.reshape(-1)}
    execution = executor.run([launched], buffers, **options)
    return execution, bool((np.abs(c - wanted) <= bound).all()), c


@pytest.mark.parametrize("name", SOURCES)
def test_correct_kernels_are_right_and_quiet(compiled, name):
    executor = compiled(name)
    for m, n, k in SHAPES:
        execution, right, c = gemm(name, executor, m, n, k)
        assert right
        assert execution.findings == ()
        for order in (1, 2, 3):
            shuffled, _, other = gemm(name, executor, m, n, k, order=order)
            assert shuffled.findings == ()
            np.testing.assert_array_equal(other, c)
        quick, _, other = gemm(name, executor, m, n, k, find=False)
        assert quick.findings == ()
        np.testing.assert_array_equal(other, c)
    assert gemm(name, executor, 20, 20, 20, beta=0.0)[1]  # NaN in C isn't read


def line_of(name: str, text: str) -> int:
    return next(i for i, line in enumerate(SOURCES[name].splitlines(), 1) if text in line)


def test_removed_barriers_are_found_at_their_line(compiled):
    for options in ({"first": False}, {"second": False}):
        execution, right, _ = gemm("tile", compiled("tile", **options), 32, 32, 64)
        assert not right
        races = [finding for finding in execution.findings if finding.kind == "race"]
        lines = {
            line_of("tile", "sum += a_tile"),
            line_of("tile", "a_tile[y][x] ="),
            line_of("tile", "b_tile[y][x] ="),
        }
        assert races
        assert {finding.line for finding in races} <= lines
        assert Path(races[0].file).name == "tile.cu"


def test_a_wrong_bound_is_found(compiled):
    execution, _, _ = gemm("tile", compiled("tile", bound="<="), 20, 16, 16)
    stray = [finding for finding in execution.findings if finding.kind == "out_of_bounds"]
    assert {finding.line for finding in stray} == {line_of("tile", "BOUND")}
    assert stray[0].thread == (0, 4, 0)
    assert stray[0].block == (0, 1, 0)


def test_counters_of_a_known_kernel(compiled):
    execution, _, _ = gemm("naive", compiled("naive"), 64, 64, 64, count=True)
    counters = execution.counters
    warps = 64 * 64 // 32
    # Of A a warp reads two rows, a sector each; of B two halves of 64 bytes that are the same.
    assert counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == warps * (2 * 64 + 1)
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == warps * (64 * (2 + 2) + 4)
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == warps * 4
    assert counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 64 * 64 * (64 + 1)
    assert counters["ptx_global_unique_sectors_ld"] == 3 * 64 * 64 // 8

    execution, _, _ = gemm("tile", compiled("tile"), 64, 64, 64, count=True)
    counters = execution.counters
    steps = warps * 4
    assert counters["ptx_barriers"] == steps * 2
    assert counters["ptx_block_barriers"] == 16 * 4 * 2
    assert counters["ptx_shared_loads"] == steps * 32
    # Four loads of A become one of 16 bytes; B's stay, one wavefront each since half warps read the same words.
    assert counters["smsp__inst_executed_op_shared_ld.sum"] == steps * (4 + 16)
    assert counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 0
    assert counters["smsp__inst_executed_op_shared_st.sum"] == steps * 2


@pytest.mark.parametrize("architecture", ["80", "100"])
def test_other_architectures(compiled, architecture):
    for name in ("tile", "register_tile"):
        execution, right, _ = gemm(name, compiled(name, architecture=architecture), 33, 17, 40)
        assert right
        assert execution.findings == ()


def test_merging_agrees_with_ptxas(compiled, nvcc, tmp_path):
    nvdisasm = toolchain.find_nvdisasm(nvcc)
    assert nvdisasm is not None, "the lock brings nvdisasm"
    for name in ("tile", "register_tile", "reduction"):
        executor = compiled(name)
        cubin = tmp_path / f"{name}.cubin"
        subprocess.run([toolchain.find_ptxas(nvcc), "-arch=sm_90", executor.ptx, "-o", cubin], check=True)
        mix = sass.instruction_mix(cubin, nvdisasm)["gemm"]
        for opcode, predicted in zip(("LDS", "STS"), executor.shared_widths("gemm"), strict=True):
            names = {4: opcode, 8: f"{opcode}.64", 16: f"{opcode}.128"}
            assert {width: mix[text] for width, text in names.items() if text in mix} == predicted
