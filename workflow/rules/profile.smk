# profile: Nsight Compute's counters, one launch after warm-up. Jobs may start side by side (ncu's own start takes
# longest); the profiled launches take turns by the GPU's lock, and no timing runs beside, since bench takes all cores.
# The rows of a run with no GPU come from bench.smk.
if TARGET.has_gpu:

    rule profile:
        input:
            kernel_files,
            checked_inputs,
            modules("profile"),
        output:
            table=f"{RESULTS}/profile/{{variant}}.csv",
        log:
            f"{RESULTS}/logs/profile/{{variant}}.log",
        conda:
            "../../environment.yml"
        params:
            checked=checked_options,
            report=f"{RESULTS}/profile/{{variant}}.ncu-rep",
            settings=settings("preset", "seed", "headline_shape", "profile", "count"),
            device=TARGET.fingerprint,
            entry=entry_text,
        shell:
            "python3 -m gemmlab profile --variant {wildcards.variant:q} {params.checked:q} --output {output.table:q}"
            " --report {params.report:q} --settings {params.settings:q} 2>&1 | tee {log:q}"
