"""What the driver says of things that it may refuse: code for other architectures, and too much shared memory.

Articles A and B claim errors (A20, B13). Each is tried once on the GPU at hand and the driver's own words recorded.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gemmlab import driver, status
from gemmlab.executors.base import Unavailable
from gemmlab.executors.device_memory import cuda_errors, load_cupy
from gemmlab.executors.limits import SHARED_BYTES_WITHOUT_OPT_IN, DeviceLimits
from gemmlab.files import read_json, repository_root, sha256_file, sha256_of, write_json
from gemmlab.process import run_process
from gemmlab.schema import validate
from gemmlab.sources import stage_sources
from gemmlab.timing.device import NUMBER
from gemmlab.timing.lock import hold_gpu
from gemmlab.toolchain import Nvcc, find_nvcc, supported_architectures
from gemmlab.worker import end_with_parent, run_worker

ACCEPTED = "CUDA_SUCCESS"
ENTRY = "touch"
# Uses its shared memory, whose size the launch decides.
_KERNEL = f"""
extern "C" __global__ void __launch_bounds__(32) {ENTRY}(float* output) {{
    extern __shared__ float shared[];
    shared[threadIdx.x] = threadIdx.x;
    __syncthreads();
    output[threadIdx.x] = shared[31 - threadIdx.x];
}}
"""
_TIMEOUT_S = 60.0
_TIME_LIMIT_S = 180.0

Answer = dict[str, str | None]


def builds(architecture: str, architectures: Sequence[str]) -> dict[str, list[str]]:
    """nvcc's options for each thing that is loaded, by the name of its case.

    Args:
        architecture: of the GPU at hand, such as sm_90.
        architectures: all that this nvcc compiles for.
    """
    major = architecture[:-1]
    other = next(
        (name for name in architectures if re.fullmatch(r"sm_\d+", name) and name[:-1] != major), None
    )
    cases = {
        "cubin_for_this_architecture": ["-cubin", f"-arch={architecture}"],
        "cubin_without_architecture": ["-cubin"],
        "fatbin_without_architecture": ["-fatbin"],
        "ptx_of_a_newer_version": ["-ptx", f"-arch={architecture}"],
    }
    return cases | ({"cubin_for_another_architecture": ["-cubin", f"-arch={other}"]} if other else {})


def newer_version(ptx: bytes) -> bytes:
    """The PTX as a compiler of the far future would mark it."""
    return re.sub(rb"^\.version .*$", b".version 99.0", ptx, count=1, flags=re.MULTILINE)


def compile_image(nvcc: Nvcc, options: Sequence[str], folder: Path) -> bytes | str:
    """What nvcc makes of the kernel, or in words why it makes nothing."""
    source, image = folder / "touch.cu", folder / "touch.image"
    source.write_text(_KERNEL)
    image.unlink(missing_ok=True)
    completed = run_process([nvcc.path, *options, source, "-o", image], timeout_s=_TIMEOUT_S)
    if completed.returncode != 0 or not image.is_file():
        lines = completed.output.replace(f"{folder}/", "").splitlines() or ["nvcc said nothing"]
        return f"not compiled: {lines[0]}"
    return image.read_bytes()


def answer_to(attempt: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Answer:
    """The name of the driver's error and its words, or CUDA_SUCCESS."""
    try:
        attempt()
    except errors as error:
        name, _, words = str(error).partition(": ")
        return {"error": name, "message": words or name}
    return {"error": ACCEPTED, "message": "accepted"}


def shared_memory_cases(limit_bytes: int) -> dict[str, tuple[int, bool]]:
    """Bytes of dynamic shared memory and whether the launch opts in to them, by the name of the case."""
    return {
        "shared_memory_without_opting_in": (SHARED_BYTES_WITHOUT_OPT_IN + 1, False),
        "shared_memory_at_the_limit": (limit_bytes, True),
        "shared_memory_over_the_limit": (limit_bytes + 1, True),
    }


def try_all(nvcc_choice: str) -> dict[str, Answer]:
    """Every case on the GPU.

    Raises:
        Unavailable: no CuPy or no GPU.
        GemmlabError: no nvcc.
    """
    cupy = load_cupy()
    uuid = driver.device_uuid(NUMBER)
    if uuid:
        hold_gpu(uuid)
    limits = DeviceLimits.of_device(NUMBER)
    cupy.cuda.Device(NUMBER).use()
    cupy.cuda.runtime.deviceSynchronize()
    errors = cuda_errors(cupy)
    nvcc = find_nvcc(nvcc_choice, driver_cuda=driver.cuda_version())
    architecture = "sm_{}{}".format(*limits.capability)
    answers: dict[str, Answer] = {}
    with tempfile.TemporaryDirectory(prefix="gemmlab-refusals-") as name:
        folder = Path(name)
        for case, options in builds(architecture, supported_architectures(nvcc)).items():
            image = compile_image(nvcc, options, folder)
            if isinstance(image, str):
                answers[case] = {"error": None, "message": image}
                continue
            image = newer_version(image) if case == "ptx_of_a_newer_version" else image
            answers[case] = answer_to(lambda image=image: cupy.cuda.driver.moduleLoadData(image), errors)
        image = compile_image(nvcc, ["-cubin", f"-arch={architecture}"], folder)
        if isinstance(image, bytes):
            cubin = folder / "touch.cubin"
            cubin.write_bytes(image)
            answers |= _launch_all(cupy, cubin, limits.shared_bytes_per_block, errors)
    return answers


def _launch_all(
    cupy: Any, cubin: Path, limit_bytes: int, errors: tuple[type[Exception], ...]
) -> dict[str, Answer]:
    output = cupy.cuda.alloc(32 * 4)

    def launch(size: int, opt_in: bool) -> None:
        kernel = cupy.RawModule(path=str(cubin)).get_function(ENTRY)
        if opt_in:
            kernel.max_dynamic_shared_size_bytes = size
        kernel((1,), (32,), (output,), shared_mem=size)
        cupy.cuda.runtime.deviceSynchronize()

    return {
        case: answer_to(lambda size=size, opt_in=opt_in: launch(size, opt_in), errors)
        for case, (size, opt_in) in shared_memory_cases(limit_bytes).items()
    }


def _digest(nvcc_choice: str) -> str:
    root = repository_root()
    files = stage_sources("refusals")
    return sha256_of([nvcc_choice, *files, *(sha256_file(root / file) for file in files)])[:16]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--nvcc", default="auto", help="auto, wheel or a path")
    parser.add_argument("--inside-worker", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Try every case and write the answers; the exit status is 0 whatever they are."""
    record: dict[str, Any] = {
        "probe": "refusals",
        "status": status.OK,
        "reason": None,
        "digest": _digest(options.nvcc),
    }
    if options.inside_worker:
        end_with_parent()
        try:
            record["answers"] = try_all(options.nvcc)
        except Unavailable as error:
            record |= {"status": status.UNAVAILABLE, "reason": str(error)}
    else:
        # A refused launch may cost its process the context, and an old driver the process.
        options.output.unlink(missing_ok=True)
        command = [sys.executable, "-m", "gemmlab", "refusals", "--inside-worker", "--nvcc", options.nvcc]
        result = run_worker([*command, "--output", str(options.output)], _TIME_LIMIT_S, None)
        if result.death or not options.output.is_file():
            reason = f"refusals: {result.death or 'the process left no result'}"
            record |= {"status": status.FAILED, "reason": reason}
        else:
            record |= read_json(options.output)
    validate(record, "probe", str(options.output))
    write_json(options.output, record)
    for case, answer in record.get("answers", {}).items() if not options.inside_worker else ():
        print(f"{case.replace('_', ' ')}: {answer['error']}, {answer['message']}")
    return 0
