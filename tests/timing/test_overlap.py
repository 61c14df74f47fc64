from __future__ import annotations

from pathlib import Path

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.timing.overlap import Measured, main, overlaps, read_samples

CASES = Path(__file__).parents[1] / "cases" / "samples"
# Two processes that were started at the same time on one H200; the lock made the second wait.
SIDE_BY_SIDE = sorted(CASES.glob("side_by_side_*.csv"))


def measured(start_s: float, end_s: float, gpu: str = "GPU-1", machine_start_s: float = 1000.0) -> Measured:
    return Measured(gpu, start_s, end_s, machine_start_s, f"{start_s} to {end_s}")


def test_two_benches_started_together_never_time_at_the_same_time() -> None:
    first, second = (read_samples(path) for path in SIDE_BY_SIDE)
    # 4 shapes cold and 3 hot, 8 blocks each.
    assert len(first) == len(second) == 56
    assert overlaps([*first, *second]) == []
    # One process ends before the other begins, within seconds.
    ends, begins = sorted(
        (min(m.start_s for m in side), max(m.end_s for m in side)) for side in (first, second)
    )
    assert 0 < begins[0] - ends[1] < 5


def test_samples_that_overlap_are_found(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_text(SIDE_BY_SIDE[0].read_text().replace("cublas_fp32", "other"))
    assert main([str(SIDE_BY_SIDE[0]), str(copy)]) == 1
    out = capsys.readouterr().out
    assert "112 measurements in 2 files, 56 overlaps" in out
    assert "other 512 x 512 x 512 cold, block" in out
    assert main([str(path) for path in SIDE_BY_SIDE]) == 0


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (measured(1.0, 2.0), 0),
        (measured(0.9, 2.0), 1),
        (measured(0.2, 0.3), 1),
        (measured(0.0, 1.0), 1),
        (measured(-1.0, 0.0), 0),
        (measured(0.2, 0.3, gpu="GPU-2"), 0),
        (measured(0.2, 0.3, machine_start_s=9000.0), 0),
        (measured(0.2, 0.3, machine_start_s=1000.4), 1),
    ],
)
def test_spans_of_one_card_and_one_start_of_the_machine_are_compared(other: Measured, expected: int) -> None:
    assert len(overlaps([measured(0.0, 1.0), other])) == expected


def test_a_long_measurement_overlaps_all_that_ran_meanwhile() -> None:
    whole = measured(0.0, 10.0)
    inside = [measured(float(start), start + 0.5) for start in range(1, 6)]
    assert overlaps([*inside, whole]) == [(whole, each) for each in inside]


def test_a_file_that_holds_no_samples_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(GemmlabError, match=r"other\.csv: not a file of samples"):
        read_samples(other)
    assert main([str(tmp_path / "missing.csv")]) == 2
    assert "missing.csv" in capsys.readouterr().err
