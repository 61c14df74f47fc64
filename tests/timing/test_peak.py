from __future__ import annotations

import pytest

from gemmlab.timing.peak import peak_tflops


@pytest.mark.parametrize(
    ("arithmetic", "tflops"),
    [("fp32", 66.9), ("tf32", 535.3), ("fp16", 1070.5), ("bf16", 1070.5)],
)
def test_peaks_of_an_h200_at_1980_mhz(arithmetic: str, tflops: float) -> None:
    assert peak_tflops(arithmetic, (9, 0), 132, 1980) == pytest.approx(tflops, abs=0.05)


def test_the_data_sheet_of_an_a100_is_met() -> None:
    # 108 SMs at 1410 MHz: 19.5, 156 and 312 TFLOP/s.
    assert peak_tflops("fp32", (8, 0), 108, 1410) == pytest.approx(19.5, abs=0.05)
    assert peak_tflops("tf32", (8, 0), 108, 1410) == pytest.approx(156, abs=0.5)
    assert peak_tflops("bf16", (8, 0), 108, 1410) == pytest.approx(312, abs=0.5)


def test_an_unknown_device_or_clock_has_no_peak() -> None:
    assert peak_tflops("fp32", (42, 0), 100, 1000) is None
    assert peak_tflops("fp32", (9, 0), 132, None) is None
    assert peak_tflops("tf32", (7, 5), 40, 1500) is None
