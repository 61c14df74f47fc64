"""The command `gemmlab STAGE ...`: each stage's module says what it takes and does the work."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from gemmlab import __version__
from gemmlab.errors import GemmlabError
from gemmlab.files import named_commit

# Only what is named here is a command; the module of a command is imported when it is called, not before.
COMMANDS = {
    "environment": "record this machine: GPU, driver, toolkit, packages, commit",
    "doctor": "say what is wrong or missing on this machine, what it costs and the cure",
    "new": "scaffold a kernel and its entry in the catalogue",
    "compile": "compile one variant to PTX and cubin and record its resources",
    "check": "check one variant against the float64 reference over hundreds of random shapes",
    "count": "count the memory-system events of one variant on the emulator",
    "bench": "time one variant against its baseline, verify what is timed, and flag what can't be trusted",
    "profile": "collect one variant's counters with Nsight Compute",
    "sanitize": "run compute-sanitizer's four tools over one variant",
    "probe": "measure the device with one probe",
    "refusals": "record what the driver says of foreign code and of too much shared memory",
    "claims": "decide the articles' claims and rebuild their tables from what the stages wrote",
    "unavailable": "write the rows of stages that this machine can't run",
    "publish": "build tables, figures and the report from what the stages wrote",
    "headline": "show the last run's headline table and the report's path",
    "gate": "print a variant's row and fail if its status is bad",
    "compare": "say which variants became faster or slower between two runs",
    "readme": "rewrite the README's table from the recorded runs",
    "tune": "sweep the 2D block tile on this GPU with Kernel Tuner",
    "static-evidence": "compile kernels for several architectures and say what they take of an SM",
    "publish-run": "record a run on a GPU under results/published",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status (2 for a mistake that the message explains)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="gemmlab", description=__doc__)
    parser.add_argument("--version", action="version", version=f"gemmlab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == called:
            module = importlib.import_module(f"gemmlab.{name.replace('-', '_')}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    try:
        named_commit()
        return options.run(options) or 0
    except GemmlabError as error:
        print(f"gemmlab {options.command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gemmlab {options.command}: {_fault(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _fault(error: OSError) -> str:
    """The path, where the system names one, and its word on it."""
    text = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {text}" if error.filename else text


if __name__ == "__main__":
    sys.exit(main())
