# sanitize: compute-sanitizer's four tools. Broken kernels always, the others in the preset full. As with checks,
# nothing is timed here.


rule sanitize:
    input:
        kernel_files,
        modules("sanitize"),
        rules.compile.output.cubin,
        build=rules.compile.output.record,
    output:
        f"{RESULTS}/sanitize/{{variant}}.json",
    log:
        f"{RESULTS}/logs/sanitize/{{variant}}.log",
    conda:
        "../../environment.yml"
    threads: 4
    params:
        settings=settings("preset", "seed"),
        device=TARGET.fingerprint,
        entry=entry_text,
    shell:
        "python3 -m gemmlab sanitize --variant {wildcards.variant:q} --build {input.build:q} --output {output:q}"
        " --settings {params.settings:q} 2>&1 | tee {log:q}"
