# publish: tables, figures, report. Everything that was written, whatever its status, is in them.
from pathlib import Path


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


rule publish:
    input:
        all_results,
        rules.claims.output,
        recorded_runs,
        presentation,
        modules("publish"),
    output:
        multiext(
            f"{RESULTS}/tables/",
            "summary.csv",
            "checks.csv",
            "broken.csv",
            "counters.csv",
            "timings.csv",
        ),
        directory(f"{RESULTS}/figures"),
        report=f"{RESULTS}/report.html",
        summary=f"{RESULTS}/summary.md",
    log:
        f"{RESULTS}/logs/publish.log",
    conda:
        "../../environment.yml"
    params:
        results=RESULTS,
        settings=settings("preset", "device", "headline_shape", "seed", "variants"),
    shell:
        "python3 -m gemmlab publish --results {params.results:q} --published results/published"
        " --settings {params.settings:q} 2>&1 | tee {log:q}"
