"""An executor made of NumPy, right unless told to make a mistake: it shows that the check finds each kind."""

from __future__ import annotations

import numpy as np

from gemmlab.executors.base import Execution, Finding


def rows_of(buffer, rows, columns, pitch):
    return np.lib.stride_tricks.as_strided(
        buffer, (rows, columns), (pitch * buffer.itemsize, buffer.itemsize)
    )


class FakeExecutor:
    name = "emulator"

    def __init__(self, mistake: str | None = None):
        self.mistake = mistake
        self.runs = 0

    def run(self, launches, buffers, *, order=0, find=True, count=False):
        self.runs += 1
        values = [getattr(argument, "value", None) for argument in launches[0].arguments]
        m, n, k, alpha, _, lda, _, ldb, beta, _, ldc = values
        a, b, c = (
            rows_of(buffers[name], rows, columns, pitch)
            for name, rows, columns, pitch in (("a", m, k, lda), ("b", k, n, ldb), ("c", m, n, ldc))
        )
        with np.errstate(invalid="ignore", over="ignore"):
            result = alpha * (a.astype(np.float64) @ b.astype(np.float64))
            if beta or self.mistake == "reads C at beta 0":
                result = result + beta * c.astype(np.float64)
        if self.mistake == "short k" and k > 1:
            result -= alpha * np.outer(a[:, -1].astype(np.float64), b[-1].astype(np.float64))
        if self.mistake == "last cell unwritten":
            result[-1, -1] = c[-1, -1]
        if self.mistake == "infinite" and m > 1:
            result[-1, -1] = np.inf
        if self.mistake == "order matters" and order == 2:
            result *= 1 + 2.0**-23
        if self.mistake == "other bits" and not float(a[0, 0]).is_integer():
            result *= 1 + 2.0**-25
        if self.mistake != "writes nothing":
            c[:] = result
        if self.mistake == "changes A" and lda == k:
            buffers["a"][0] = 7
        if self.mistake == "writes past the row" and ldc > n and m > 1:
            buffers["c"][n] = 0
        findings = ()
        if self.mistake == "no progress":
            findings = (Finding("no_progress", "no progress: a.cu:7"),)
        if self.mistake == "race" and find:
            findings = (
                Finding("race", "race: a.cu:7", "a.cu", 7, (0, 0, 0), (1, 0, 0), (2, 0, 0), "ld.shared", 3),
            )
        return Execution(findings, {"ptx_instructions": m * n * k} if count else {})
