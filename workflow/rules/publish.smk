# publish: tables, figures, report. Everything that was written, whatever its status, is in them.


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
        results=results_folder,
        settings=settings("preset", "device", "headline_shape", "seed", "variants"),
    shell:
        "python3 -m gemmlab publish --results {params.results:q} --published results/published"
        " --settings {params.settings:q} 2>&1 | tee {log:q}"
