from __future__ import annotations

import ctypes
import uuid

import pytest

from gemmlab import driver
from gemmlab.device_attributes import NAMES

CARDS = [uuid.UUID(int=1), uuid.UUID(int=2)]
ATTRIBUTES = {75: 9, 76: 0, 16: 132}


class FakeLibrary:
    """The few driver calls that we make, over two cards."""

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, version: ctypes.c_int) -> int:
        version._obj.value = 12090
        return 0

    def cuDeviceGetCount(self, count: ctypes.c_int) -> int:
        count._obj.value = len(CARDS)
        return 0

    def cuDeviceGet(self, handle: ctypes.c_int, ordinal: int) -> int:
        handle._obj.value = ordinal
        return 0

    def cuDeviceGetUuid(self, content: ctypes.Array, handle: ctypes.c_int) -> int:
        content[:] = CARDS[handle.value].bytes
        return 0

    def cuDeviceGetAttribute(self, value: ctypes.c_int, number: int, handle: ctypes.c_int) -> int:
        if number not in ATTRIBUTES:
            return 1
        value._obj.value = ATTRIBUTES[number]
        return 0


@pytest.fixture(autouse=True)
def forget() -> None:
    driver._initialised.cache_clear()
    yield
    driver._initialised.cache_clear()


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_library", FakeLibrary)


def test_without_a_driver_there_are_answers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_library", lambda: None)
    assert driver.cuda_version() is None
    assert driver.device_count() == 0
    assert driver.device_of("GPU-1") is None
    assert driver.compute_capability("GPU-1") is None


def test_the_version_is_a_pair(two_cards: None) -> None:
    assert driver.cuda_version() == (12, 9)


def test_a_card_is_found_by_the_uuid_that_nvidia_smi_prints(two_cards: None) -> None:
    assert driver.device_of(f"GPU-{CARDS[1]}") == 1
    assert driver.device_of("GPU-unknown") is None
    assert driver.device_uuid(2) is None


def test_attributes_go_by_name_and_unknown_ones_lack(two_cards: None) -> None:
    assert driver.device_attributes(0) == {
        "multiprocessor_count": 132,
        "compute_capability_major": 9,
        "compute_capability_minor": 0,
    }
    assert driver.compute_capability(f"GPU-{CARDS[0]}") == (9, 0)


def test_the_names_stand_at_their_numbers_of_cuda_h() -> None:
    numbers = {
        "warp_size": 10,
        "l2_cache_size": 38,
        "max_shared_memory_per_block_optin": 97,
        "cluster_launch": 120,
    }
    assert {name: NAMES.index(name) + 1 for name in numbers} == numbers
    assert len(set(NAMES)) == len(NAMES)
