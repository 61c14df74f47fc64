from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmlab import ncu, status
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root
from gemmlab.ncu import Action, Value
from gemmlab.ncu_metrics import COUNTERS, NVPROF, NVPROF_ONLY, STANDARD, metric_table, nvprof_value

CASES = Path(__file__).parent / "cases" / "profile"


def case(name: str) -> str:
    return (CASES / name).read_text()


class FakeMetric:
    """What ncu_report gives for a metric."""

    def __init__(self, value, unit=""):
        self._value, self._unit = value, unit

    def has_value(self):
        return self._value is not None

    def value(self):
        return self._value

    def unit(self):
        return self._unit


def test_command_profiles_only_what_the_target_brackets_and_touches_no_clock():
    command = ncu.command(
        Path("/opt/ncu"),
        ["python3", "-m", "target"],
        report=Path("/tmp/a folder/r.ncu-rep"),
        log=Path("/tmp/a folder/log"),
        metrics=["a.sum", "b.pct"],
        kernels=["split", "gemm", "gemm"],
    )
    text = " ".join(command)
    assert command[0] == "/opt/ncu"
    assert command[-3:] == ["python3", "-m", "target"]
    assert "--clock-control none" in text
    assert "--cache-control all" in text
    assert "--profile-from-start off" in text
    assert "--kernel-name regex:^(gemm|split)$" in text
    assert "--metrics a.sum,b.pct" in text
    assert "--set" not in command
    assert "/tmp/a folder/r.ncu-rep" in command


def test_command_of_a_library_filters_no_kernels_and_full_adds_the_set():
    command = ncu.command(
        Path("ncu"), ["t"], report=Path("r"), log=Path("l"), metrics=["a.sum"], kernels=[], full=True
    )
    assert "--kernel-name" not in command
    assert command[command.index("--set") + 1] == "full"


@pytest.mark.parametrize(
    ("name", "word", "said"),
    [
        (
            "permission.log",
            status.UNAVAILABLE,
            "counter permission.*CAP_SYS_ADMIN.*--cap-add.*NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("counters_taken.log", status.UNAVAILABLE, "DCGM"),
        ("library_missing.log", status.UNAVAILABLE, "profiling library"),
        (
            "nothing_profiled.log",
            status.FAILED,
            "no kernel. Likely: the launch failed.*name differs.*ended before",
        ),
        ("target_failed.log", status.FAILED, "status 3 under ncu: .*no such variant"),
        ("unknown_metric.log", status.FAILED, r"^ncu: Failed to find metric regex:\S+$"),
        ("unknown_metrics.log", status.FAILED, r"^ncu: Unable to access the following 4 metrics: .*sum\.$"),
    ],
)
def test_failures_are_explained(name, word, said):
    failure = ncu.explain(case(name), 1, "Traceback\nGemmlabError: no such variant\n")
    assert failure.status == word
    assert re.search(said, failure.reason)


def test_a_fault_under_ncu_tells_what_both_said():
    log = "==ERROR== LaunchFailed\n==ERROR== The application returned an error code (2).\n"
    reason = ncu.explain(log, 2, "gemm: misaligned address\n").reason
    assert reason == "ncu: LaunchFailed; the target ended with status 2 under ncu: gemm: misaligned address"


def test_no_kernels_with_exit_0_is_a_failure_and_a_good_log_is_none():
    assert ncu.explain(case("nothing_profiled.log"), 0, "").status == status.FAILED
    assert ncu.explain('==PROF== Profiling "gemm": 0%....100% - 16 passes\n', 0, "") is None


def test_a_status_without_a_message_shows_what_the_target_said():
    assert "127: ncu: not found" in ncu.explain("", 127, "ncu: not found").reason


def test_unknown_metrics_are_found_by_full_and_by_base_name():
    asked = [
        "smsp__imagined.sum",
        "smsp__imagined_other.sum",
        "nvltx__bytes.sum",
        "dram__bytes_write.sum",
    ]
    assert ncu.unknown_metrics(case("unknown_metrics.log"), asked) == asked[2:3]
    assert ncu.unknown_metrics(case("unknown_metric.log"), ["smsp__imagined", *asked[1:]]) == [
        "smsp__imagined"
    ]
    assert ncu.unknown_metrics("==ERROR== Failed to find metric smsp__imagined.sum\n", asked) == asked[:1]
    assert ncu.unknown_metrics(case("permission.log"), asked) == []


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("ms", "ns", 1e6),
        ("usecond", "ns", 1e3),
        ("ns", "ns", 1),
        ("Gbyte", "byte", 1e9),
        ("Kbyte/block", "byte/block", 1e3),
        ("Gbyte/second", "byte/s", 1e9),
        ("byte/ns", "byte/s", 1e9),
        ("Mhz", "hz", 1e6),
        ("%", "%", 1),
        ("inst", "inst", 1),
        ("register/thread", "register/thread", 1),
        ("", "", 1),
    ],
)
def test_units_become_base_units(unit, base, factor):
    assert ncu.base_unit(unit) == (base, factor)


def test_values_are_null_with_a_reason_never_zero():
    assert ncu._read_value(FakeMetric(1.5, "ms")) == Value(1.5e6, "ns")
    assert ncu._read_value(FakeMetric(7, "inst")) == Value(7, "inst")
    assert ncu._read_value(FakeMetric(0, "inst")) == Value(0, "inst")
    for absent in (None, FakeMetric(None, "%"), FakeMetric(float("nan"), "%"), FakeMetric("n/a", "%")):
        value = ncu._read_value(absent)
        assert value.value is None
        assert value.reason


def test_a_file_that_is_no_report_is_named(tmp_path):
    with pytest.raises(GemmlabError, match=r"missing\.ncu-rep"):
        ncu.read_report(tmp_path / "missing.ncu-rep", [])


def test_csv_with_output_before_the_header_units_grouped_digits_and_short_rows():
    first, second = ncu.parse_csv(case("raw_page.csv"))
    assert first["Kernel Name"] == "gemm"
    assert first["gpu__time_duration.sum"].value == pytest.approx(1.27e6)
    assert first["gpu__time_duration.sum"].unit == "ns"
    assert first["dram__bytes_read.sum"].value == pytest.approx(8.42e6)
    assert first["smsp__inst_executed.sum"].value == 71565312
    assert first["smsp__inst_executed.sum"].tolerance == 0.5
    assert first["smsp__inst_executed_op_ldgsts.sum"].value is None
    assert second["dram__bytes_read.sum"].value == pytest.approx(1204.61e6)
    assert "sm__throughput.avg.pct_of_peak_sustained_elapsed" not in second


def test_csv_without_units_and_text_that_is_no_csv():
    (row,) = ncu.parse_csv('"ID","Kernel Name","a__b.sum"\n"0","gemm","3"\n')
    assert row["a__b.sum"].value == 3
    with pytest.raises(GemmlabError, match="Kernel Name"):
        ncu.parse_csv("==ERROR== something\n")


def actions_of_raw_page() -> list[Action]:
    return [
        Action(
            "gemm",
            "gemm",
            13,
            {
                "dram__bytes_read.sum": Value(8_423_100, "byte"),
                "gpu__time_duration.sum": Value(1_268_000, "ns"),
                "smsp__inst_executed.sum": Value(71_565_312, "inst"),
                "smsp__inst_executed_op_ldgsts.sum": Value(None, "inst", "n/a"),
            },
        ),
        Action("gemm", "gemm", 14, {"dram__bytes_read.sum": Value(1_204_609_000, "byte")}),
    ]


def test_a_report_agrees_with_its_export_within_the_printed_digits():
    rows = ncu.parse_csv(case("raw_page.csv"))
    assert ncu.differences(actions_of_raw_page(), rows) == []


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("dram__bytes_read.sum", Value(8_426_000, "byte")),
        ("gpu__time_duration.sum", Value(1.27, "ms")),
        ("smsp__inst_executed.sum", Value(71_565_313, "inst")),
        ("smsp__inst_executed_op_ldgsts.sum", Value(0, "inst")),
        ("smsp__inst_executed.sum", Value(None, "inst", "n/a")),
    ],
)
def test_every_kind_of_difference_is_seen(metric, value):
    actions = actions_of_raw_page()
    actions[0].metrics[metric] = value
    (difference,) = ncu.differences(actions, ncu.parse_csv(case("raw_page.csv")))
    assert difference.startswith(f"launch 1, {metric}")


def test_a_missing_launch_is_a_difference():
    assert ncu.differences(actions_of_raw_page()[:1], ncu.parse_csv(case("raw_page.csv")))


def test_metrics_stand_once_and_hold_what_articles_and_emulator_name():
    names = [metric.name for metric in STANDARD]
    assert len(names) == len(set(names))
    assert {metric.name for metric in COUNTERS} <= set(names)
    for articles in (
        "gpu__time_duration.sum",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ):
        assert articles in names
    assert not set(NVPROF_ONLY) & set(names)


def test_nvprof_names_by_hand():
    values = {
        "gpu__time_duration.sum": 1e6,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1000,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 250,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 64,
        "smsp__inst_executed_op_shared_ld.sum": 32,
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1,
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 2,
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 10,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 25.0,
    }
    # 1000 sectors of 32 bytes in a millisecond are 32 MB/s.
    assert nvprof_value("gld_throughput", values) == pytest.approx(32e6)
    assert nvprof_value("gld_transactions_per_request", values) == 4
    assert nvprof_value("shared_load_transactions_per_request", values) == 2
    assert nvprof_value("flop_count_sp", values) == 23
    assert nvprof_value("achieved_occupancy", values) == pytest.approx(0.25)
    assert nvprof_value("gst_throughput", values) is None
    assert nvprof_value("gld_throughput", values | {"gpu__time_duration.sum": 0}) is None
    with pytest.raises(GemmlabError, match="gld_thruput"):
        nvprof_value("gld_thruput", values)


def test_the_articles_nvprof_names_are_in_the_table_and_need_no_preset():
    standard = {metric.name for metric in STANDARD}
    for name in ("gld_throughput", "gst_throughput", "shared_load_transactions_per_request"):
        (metric,) = (metric for metric in NVPROF if metric.name == name)
        assert standard.issuperset(metric.metrics)


def test_documentation_has_the_whole_table():
    documented = (repository_root() / "docs" / "profiling.md").read_text()
    missing = [line for line in metric_table().splitlines() if line and line not in documented]
    assert not missing
