# gate: the exit status of the experiment. Stages write what they saw; only here does a bad result fail.


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
        results=results_folder,
        device=config["device"],
    shell:
        "python3 -m gemmlab gate --results {params.results:q} --device {params.device:q}"
        " --variant {wildcards.variant:q} --output {output:q} 2>&1 | tee {log:q}"


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
        results=results_folder,
        device=config["device"],
    shell:
        "python3 -m gemmlab gate --results {params.results:q} --device {params.device:q} --output {output:q}"
        " 2>&1 | tee {log:q}"
