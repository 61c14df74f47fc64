# count: the memory-system events of each variant at fixed shapes, exact, by the emulator.
rule count:
    input:
        kernel_files,
        modules("count"),
        rules.emulator.output,
        rules.compile.output.ptx,
        build=rules.compile.output.record,
    output:
        f"{RESULTS}/count/{{variant}}.json",
    log:
        f"{RESULTS}/logs/count/{{variant}}.log",
    conda:
        "../../environment.yml"
    params:
        shapes=json.dumps(config["count"]["shapes"]),
        entry=entry_text,
    shell:
        "python3 -m gemmlab count --variant {wildcards.variant:q} --build {input.build:q} --output {output:q}"
        " --shapes {params.shapes:q} 2>&1 | tee {log:q}"
