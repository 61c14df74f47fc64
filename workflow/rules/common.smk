# What all rules share: the validated configuration, the catalogue, the device, and what a stage depends on.
import functools
import json

from gemmlab import device
from gemmlab.catalogue import load_catalogue, select, source_files
from gemmlab.config import validate_config
from gemmlab.files import git_head
from gemmlab.sources import emulator_sources, stage_sources

try:
    validate_config(config, "configuration (config/config.yaml and --config)")
    CATALOGUE = select(load_catalogue(), config["variants"])
    TARGET = device.resolve(config)
    for entry in CATALOGUE.values():
        source_files(entry)
except GemmlabError as error:
    raise WorkflowError(str(error))

RESULTS = f"results/{TARGET.slug}"
VARIANTS = list(CATALOGUE)
COMPILED = [name for name, entry in CATALOGUE.items() if entry.compiled]
CHECKED = [name for name in COMPILED if CATALOGUE[name].kind in ("kernel", "broken")]
TIMED = [name for name, entry in CATALOGUE.items() if entry.kind in ("kernel", "baseline")]
BROKEN = [name for name in COMPILED if CATALOGUE[name].kind == "broken"]
EXECUTORS = ["emulator", "cuda"] if TARGET.has_gpu else ["emulator"]

# One job on the GPU at a time, whatever profile or --cores says; --resources gpu=N still overrides.
if "gpu" not in workflow.global_resources:
    workflow.global_resources["gpu"] = 1


wildcard_constraints:
    variant="[A-Za-z][A-Za-z0-9_]*",
    executor="emulator|cuda",


def modules(stage):
    """The package files that decide a stage's result, as inputs: content counts, not time stamps."""
    return list(stage_sources(stage))


def kernel_files(wildcards):
    """A variant's .cu file and its headers: direct inputs of every stage that runs it, so that a kernel which
    stopped compiling is never taken for the one that was measured."""
    return source_files(CATALOGUE[wildcards.variant])


def entry_text(wildcards):
    """The variant's entry in the catalogue: changing it reruns the variant."""
    return json.dumps(CATALOGUE[wildcards.variant].entry_text, sort_keys=True)


def settings(*sections):
    """Parts of the configuration as JSON text, quoted for the shell by :q."""
    return json.dumps({section: config[section] for section in sections if section in config}, sort_keys=True)
