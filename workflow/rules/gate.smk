# gate: the exit status of the experiment. Stages write what they saw; only here does a bad result fail.
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


rule gate_variant:
    input:
        own_results,
        modules("gate"),
    output:
        f"{RESULTS}/gate/{{variant}}",
    log:
        f"{RESULTS}/logs/gate/{{variant}}.log",
    wildcard_constraints:
        variant="(?!all$)[A-Za-z][A-Za-z0-9_]*",
    conda:
        "../../environment.yml"
    params:
        results=RESULTS,
    shell:
        "python3 -m gemmlab gate --results {params.results:q} --variant {wildcards.variant:q} --output {output:q}"
        " 2>&1 | tee {log:q}"


rule gate_all:
    input:
        rules.publish.output,
        modules("gate"),
    output:
        f"{RESULTS}/gate/all",
    log:
        f"{RESULTS}/logs/gate/all.log",
    conda:
        "../../environment.yml"
    params:
        results=RESULTS,
    shell:
        "python3 -m gemmlab gate --results {params.results:q} --output {output:q} 2>&1 | tee {log:q}"
