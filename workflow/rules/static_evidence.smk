# static_evidence: registers, spills, shared memory and occupancy on several architectures, each compiled for natively.
# Asked for by name, never part of all: four times the compiling.
rule static_evidence:
    input:
        whole_catalogue,
        modules("static_evidence"),
    output:
        f"{RESULTS}/tables/static.csv",
    log:
        f"{RESULTS}/logs/static_evidence.log",
    conda:
        "../../environment.yml"
    threads: 4096
    params:
        nvcc=config["nvcc"],
    shell:
        "python3 -m gemmlab static-evidence --nvcc {params.nvcc:q} --output {output:q} 2>&1 | tee {log:q}"
