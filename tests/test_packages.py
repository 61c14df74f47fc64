from __future__ import annotations

from gemmlab.packages import cupy_packages, parse_lock

LOCK = r"""# made by uv
numpy==2.5.5 ; python_full_version >= '3.10' \
    --hash=sha256:0123
numpy==1.0 ; python_full_version < '3.10' \
    --hash=sha256:4567
colorama==0.4.6 ; sys_platform == 'win32' \
    --hash=sha256:89ab
argparse-dataclass==2.0.0 \
    --hash=sha256:cdef \
    --hash=sha256:0000
PyYAML==6.0.3
"""


def test_a_lock_gives_what_holds_for_this_platform() -> None:
    assert parse_lock(LOCK) == {"numpy": "2.5.5", "argparse-dataclass": "2.0.0", "pyyaml": "6.0.3"}


def test_only_wheels_that_bring_cupy_count_as_cupy() -> None:
    installed = {
        "cupy-cuda12x": "14.2.0",
        "cupy-cuda13x": "14.1.0",
        "cupy-xarray": "0.1",
        "cupy": "13.0",
        "numpy": "2",
    }
    assert set(cupy_packages(installed)) == {"cupy-cuda12x", "cupy-cuda13x", "cupy"}
