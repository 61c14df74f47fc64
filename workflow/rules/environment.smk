# environment: what this machine is. Joined at publish, never an input of a stage that measures.
rule environment:
    input:
        modules("environment"),
    output:
        f"{RESULTS}/environment/environment.json",
    log:
        f"{RESULTS}/logs/environment.log",
    conda:
        "../../environment.yml"
    params:
        device=TARGET.slug,
        commit=COMMIT,
        fingerprint=TARGET.fingerprint,
    shell:
        "python3 -m gemmlab environment --device {params.device:q} --output {output:q} 2>&1 | tee {log:q}"
