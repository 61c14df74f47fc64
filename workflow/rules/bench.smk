# bench: timings against the baseline in the same process. With no GPU one job says so for every variant.
if TARGET.has_gpu:

    rule bench:
        input:
            kernel_files,
            checked_inputs,
            modules("bench"),
        output:
            table=f"{RESULTS}/bench/{{variant}}.csv",
            samples=f"{RESULTS}/bench/{{variant}}.samples.csv",
        log:
            f"{RESULTS}/logs/bench/{{variant}}.log",
        conda:
            "../../environment.yml"
        # More than any run has, which Snakemake cuts to all of its cores: no compiler runs beside a timing.
        threads: 4096
        resources:
            gpu=1,
        params:
            checked=checked_options,
            settings=settings("preset", "seed", "headline_shape", "bench"),
            device=TARGET.fingerprint,
            entry=entry_text,
        shell:
            "python3 -m gemmlab bench --variant {wildcards.variant:q} {params.checked:q} --output {output.table:q}"
            " --samples {output.samples:q} --settings {params.settings:q} 2>&1 | tee {log:q}"

else:

    rule unavailable:
        input:
            modules("unavailable"),
        output:
            expand(f"{RESULTS}/{{stage}}/{{variant}}.csv", stage=["bench", "profile"], variant=TIMED),
        log:
            f"{RESULTS}/logs/unavailable.log",
        conda:
            "../../environment.yml"
        params:
            results=results_folder,
            device=TARGET.slug,
            variants=TIMED,
            reason="this run has no GPU",
        shell:
            "for stage in bench profile; do"
            " python3 -m gemmlab unavailable --device {params.device:q} --stage $stage --reason {params.reason:q}"
            " --variants {params.variants:q} --output-dir {params.results:q}; done 2>&1 | tee {log:q}"
