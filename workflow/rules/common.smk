# What all rules share: the validated configuration, the catalogue, the device, and what a stage depends on.
import json
import sys
from pathlib import Path

from gemmlab import device
from gemmlab.catalogue import load_catalogue, select, source_files
from gemmlab.config import validate_config
from gemmlab.files import git_head, sha256_file
from gemmlab.sources import emulator_sources, stage_sources

try:
    validate_config(config, "configuration (config/config.yaml and --config)")
    CATALOGUE = select(load_catalogue(), config["variants"])
    TARGET = device.resolve(config)
    COMMIT = git_head()
    for entry in CATALOGUE.values():
        source_files(entry)
except GemmlabError as error:
    raise WorkflowError(str(error))

# Once: jobs that read the Snakefile again keep quiet. Not by Snakemake's log, which --quiet silences.
if workflow.is_main_process and (absent := device.absent_device(config["device"])):
    print(f"gemmlab: warning: {absent}", file=sys.stderr)

RESULTS = f"results/{TARGET.slug}"
VARIANTS = list(CATALOGUE)
COMPILED = [name for name, entry in CATALOGUE.items() if entry.compiled]
CHECKED = [name for name in COMPILED if CATALOGUE[name].kind in ("kernel", "broken")]
TIMED = [name for name, entry in CATALOGUE.items() if entry.kind in ("kernel", "baseline")]
BROKEN = [name for name in COMPILED if CATALOGUE[name].kind == "broken"]
# Broken kernels always, all in the preset full.
SANITIZED = [] if not TARGET.has_gpu else CHECKED if config["preset"] == "full" else BROKEN
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


def whole_catalogue(wildcards):
    """Every entry and every kernel that isn't broken: inputs of targets that choose variants by themselves."""
    kernels = [path for path in Path("kernels").rglob("*.cu*") if "broken" not in path.parts]
    return sorted(map(str, [*Path("config/variants").glob("*.yaml"), *kernels]))


def entry_text(wildcards):
    """The variant's entry in the catalogue: changing it reruns the variant."""
    return json.dumps(CATALOGUE[wildcards.variant].entry_text, sort_keys=True)


def settings(*sections):
    """Parts of the configuration as JSON text, quoted for the shell by :q."""
    return json.dumps({section: config[section] for section in sections if section in config}, sort_keys=True)


def results_folder(wildcards):
    """The folder that a stage reads as a whole."""
    return RESULTS


def needs_emulator(wildcards):
    """The emulator's library, for the executor that is one."""
    return [f"{RESULTS}/build/emulator.txt"] if wildcards.executor == "emulator" else []


def checked_inputs(wildcards):
    """What a kernel must have before it may be timed; a baseline has no kernel of ours."""
    variant = wildcards.variant
    if variant not in COMPILED:
        return []
    build = f"{RESULTS}/build/{variant}"
    return [f"{build}.json", f"{RESULTS}/check/cuda/{variant}.json", f"{build}.cubin"]


def checked_options(wildcards):
    """The same as options of the command."""
    files = checked_inputs(wildcards)
    return ["--build", files[0], "--check", files[1]] if files else []


def all_results(wildcards):
    """Every record of every stage, so that publish runs last and again when any of them changed."""
    files = [f"{RESULTS}/environment/environment.json"]
    files += [f"{RESULTS}/build/{variant}.json" for variant in COMPILED]
    files += [f"{RESULTS}/check/{executor}/{variant}.json" for executor in EXECUTORS for variant in CHECKED]
    files += [f"{RESULTS}/count/{variant}.json" for variant in CHECKED]
    files += [f"{RESULTS}/{stage}/{variant}.csv" for stage in ("bench", "profile") for variant in TIMED]
    files += [f"{RESULTS}/sanitize/{variant}.json" for variant in SANITIZED]
    files += [f"{RESULTS}/probe/{variant}.json" for variant in PROBES]
    return files + REFUSALS


def recorded_runs(wildcards):
    """The tables of recorded runs, which the report shows beside a run with no GPU."""
    return sorted(map(str, Path("results/published").glob("*/**/*.*")))


def presentation(wildcards):
    """Schemas and templates: what the tables and the report look like."""
    return sorted(
        map(str, [*Path("workflow/schemas").glob("*.json"), *Path("workflow/gemmlab/templates").glob("*")])
    )


def tables_asked_for(wildcards):
    """Digests of the sweep and the static evidence, where somebody asked for them: claims read them, but as inputs they
    would make their rules a part of every run."""
    files = [Path(RESULTS, "tune", "tune.csv"), Path(RESULTS, "tables", "static.csv")]
    return [sha256_file(file) for file in files if file.is_file()]


def own_results(wildcards):
    """The variant's own records, of the stages that its kind goes through."""
    variant = wildcards.variant
    files = []
    if variant in COMPILED:
        files.append(f"{RESULTS}/build/{variant}.json")
    if variant in CHECKED:
        files += [f"{RESULTS}/check/{executor}/{variant}.json" for executor in EXECUTORS]
        files.append(f"{RESULTS}/count/{variant}.json")
    if variant in TIMED:
        files += [f"{RESULTS}/bench/{variant}.csv", f"{RESULTS}/profile/{variant}.csv"]
    if variant in SANITIZED:
        files.append(f"{RESULTS}/sanitize/{variant}.json")
    if variant in PROBES:
        files.append(f"{RESULTS}/probe/{variant}.json")
    return files
