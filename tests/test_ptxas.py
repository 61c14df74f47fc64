from __future__ import annotations

from pathlib import Path

from gemmlab.ptxas import Resources, parse_resources, shared_memory_error

CASES = Path(__file__).parent / "cases"


def test_several_entries_with_spills_and_a_function_that_is_called() -> None:
    found = parse_resources((CASES / "ptxas_sm_75.txt").read_text())
    assert found == {
        "two": Resources(
            registers=4,
            barriers=0,
            stack_bytes=0,
            spill_store_bytes=0,
            spill_load_bytes=0,
            constant_bytes=364,
        ),
        "gemm": Resources(
            registers=64,
            barriers=0,
            stack_bytes=1808,
            spill_store_bytes=2268,
            spill_load_bytes=3156,
            constant_bytes=364,
        ),
    }


def test_what_ptxas_does_not_print_is_none_and_what_is_new_is_passed_over() -> None:
    log = """ptxas info    : Compiling entry function 'gemm' for 'sm_90'
ptxas info    : Moonlight = 17 lux
ptxas info    : Used 40 registers, 3 moons, 8192 bytes smem, 400 bytes cmem[0], 8 bytes cmem[2]
"""
    assert parse_resources(log) == {
        "gemm": Resources(registers=40, shared_static_bytes=8192, constant_bytes=408)
    }


def test_the_cumulative_stack_counts_where_it_is_larger() -> None:
    log = """ptxas info    : Compiling entry function 'gemm' for 'sm_90'
ptxas info    : Function properties for gemm
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 48 bytes cumulative stack size
"""
    assert parse_resources(log)["gemm"].stack_bytes == 48


def test_an_entry_without_a_line_of_its_own_has_nothing() -> None:
    assert parse_resources("ptxas info    : Compiling entry function 'gemm' for 'sm_90'\n") == {
        "gemm": Resources()
    }
    assert parse_resources("") == {}


def test_too_much_static_shared_memory_is_told_in_decimal() -> None:
    log = (CASES / "ptxas_shared_limit.txt").read_text()
    assert shared_memory_error(log) == "gemm needs 52000 bytes of static shared memory, limit 49152"
    assert shared_memory_error((CASES / "ptxas_sm_75.txt").read_text()) is None
