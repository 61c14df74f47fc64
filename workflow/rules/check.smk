# check: each variant against the float64 reference; on a GPU run on both executors. Checks may share the card with
# each other: nothing is timed, and the timed rules take all cores, so that none runs beside one.


rule check:
    input:
        kernel_files,
        modules("check"),
        needs_emulator,
        rules.compile.output.ptx,
        rules.compile.output.cubin,
        build=rules.compile.output.record,
    output:
        f"{RESULTS}/check/{{executor}}/{{variant}}.json",
    log:
        f"{RESULTS}/logs/check/{{executor}}/{{variant}}.log",
    conda:
        "../../environment.yml"
    params:
        shapes=config["check"]["shapes"],
        repeated_shapes=config["check"]["repeated_shapes"],
        time_limit=config["check"].get("time_limit_s", 240),
        seed=config["seed"],
        entry=entry_text,
    shell:
        "python3 -m gemmlab check --variant {wildcards.variant:q} --executor {wildcards.executor:q}"
        " --build {input.build:q} --output {output:q} --shapes {params.shapes}"
        " --repeated-shapes {params.repeated_shapes} --seed {params.seed} --time-limit {params.time_limit}"
        " 2>&1 | tee {log:q}"
