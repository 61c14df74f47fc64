"""Helpers of the emulator's tests: kernels around a few lines of PTX, and exact references."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gemmlab.executors.base import Execution, Launch, Pointer, Scalar

HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"
WARP = 32

_TYPES = {
    np.dtype(np.float32): ("f32", "f32"),
    np.dtype(np.float64): ("f64", "f64"),
    np.dtype(np.int32): ("s32", "b32"),
    np.dtype(np.uint32): ("u32", "b32"),
    np.dtype(np.int64): ("s64", "b64"),
    np.dtype(np.uint64): ("u64", "b64"),
    np.dtype(np.int16): ("s16", "b16"),
    np.dtype(np.uint16): ("u16", "b16"),
    np.dtype(np.float16): ("b16", "b16"),
}


def entry(parameters: str, body: str, *, name: str = "kernel", module: str = "", directives: str = "") -> str:
    """Return a PTX module with one kernel, whose usual registers are declared."""
    listed = ",\n".join(f"\t.param .{kind} p{i}" for i, kind in enumerate(parameters.split()))
    return (
        f"{HEADER}{module}\n.visible .entry {name}(\n{listed}\n)\n{directives}\n{{\n"
        "\t.reg .pred %p<20>;\n\t.reg .b16 %h<20>;\n\t.reg .b32 %r<60>;\n\t.reg .f32 %f<60>;\n"
        f"\t.reg .b64 %rd<60>;\n\t.reg .f64 %fd<20>;\n{body}\n\tret;\n}}\n"
    )


def launch(
    *arguments, name: str = "kernel", grid=(1, 1, 1), block=(WARP, 1, 1), shared_bytes: int = 0
) -> Launch:
    """Return a launch; strings are buffers, floats float32, integers int32."""
    converted = []
    for argument in arguments:
        if isinstance(argument, str):
            converted.append(Pointer(argument))
        elif isinstance(argument, float):
            converted.append(Scalar("float32", argument))
        elif isinstance(argument, int):
            converted.append(Scalar("int32", argument))
        else:
            converted.append(argument)
    return Launch(name, tuple(grid), tuple(block), shared_bytes, tuple(converted))


class Piece:
    """Runs a few lines of PTX, once a thread."""

    def __init__(self, load):
        self._load = load

    def __call__(self, body: str, output, **inputs: np.ndarray) -> np.ndarray:
        """Return what `body` leaves in %out, a register of the dtype `output`, for each element of the inputs.

        An input is a register of its name and dtype; one of bools is a predicate.
        """
        threads = len(next(iter(inputs.values()))) if inputs else WARP
        arrays = {
            name: np.ascontiguousarray(values, dtype=np.uint32 if values.dtype == bool else None)
            for name, values in inputs.items()
        }
        memory, register = _TYPES[np.dtype(output)]
        lines = ["\tmov.u32 %r0, %tid.x;", f"\t.reg .{register} %out;"]
        for i, (name, values) in enumerate(arrays.items()):
            size = values.dtype.itemsize
            kind, bits = _TYPES[values.dtype]
            lines += [
                f"\tld.param.u64 %rd0, [p{i}];",
                f"\tmad.wide.u32 %rd1, %r0, {size}, %rd0;",
            ]
            if inputs[name].dtype == bool:
                lines += [
                    f"\t.reg .pred %{name};",
                    "\tld.global.u32 %r1, [%rd1];",
                    f"\tsetp.ne.u32 %{name}, %r1, 0;",
                ]
            else:
                lines += [f"\t.reg .{bits} %{name};", f"\tld.global.{kind} %{name}, [%rd1];"]
        lines += [
            body,
            f"\tld.param.u64 %rd0, [p{len(arrays)}];",
            f"\tmad.wide.u32 %rd1, %r0, {np.dtype(output).itemsize}, %rd0;",
            f"\tst.global.{memory} [%rd1], %out;",
        ]
        executor = self._load(entry("u64 " * (len(arrays) + 1), "\n".join(lines)))
        out = np.zeros(threads, output)
        execution = executor.run(
            [launch(*arrays, "out", block=(threads, 1, 1))], {**arrays, "out": out}, find=True
        )
        assert execution.findings == ()
        return out


def run_once(executor, launched: Launch, buffers: dict[str, np.ndarray], **options) -> Execution:
    return executor.run([launched], buffers, **options)


def assert_same_bits(got: np.ndarray, wanted: np.ndarray) -> None:
    """Compare bit for bit, but for the payload of a NaN."""
    assert got.dtype == wanted.dtype
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(got), nan)
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    np.testing.assert_array_equal(got[~nan].view(unsigned), wanted[~nan].view(unsigned))


def nearest_float32(exact: Fraction) -> np.float32:
    """Return the float32 nearest to an exact value, ties to even."""
    guess = np.float32(float(exact))
    if not np.isfinite(guess):
        return guess
    candidates = [guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf))]
    candidates = [c for c in candidates if np.isfinite(c)]
    distance = {float(c): abs(Fraction(float(c)) - exact) for c in candidates}
    least = min(distance.values())
    best = [c for c in candidates if distance[float(c)] == least]
    return min(best, key=lambda c: int(c.view(np.uint32)) & 1)


def awkward_floats(seed: int = 0) -> np.ndarray:
    """Return 256 float32: specials, subnormals, halves and random bits."""
    special = np.array(
        [
            0,
            -0.0,
            1,
            -1,
            np.inf,
            -np.inf,
            np.nan,
            1e-45,
            -1e-45,
            1.1754944e-38,
            3.4028235e38,
            -3.4028235e38,
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            65504,
            65520,
            65536,
            2147483648,
            -2147483648,
            4294967296,
            1e20,
            5.96e-8,
            2.98e-8,
            6.1e-5,
            0.33333334,
            16777217,
            255.5,
            127.5,
            -128.5,
        ],
        np.float32,
    )
    random = np.random.default_rng(seed).integers(0, 2**32, 256 - len(special), np.uint32).view(np.float32)
    return np.concatenate([special, random])
