# probe: what the catalogue's probes measure of the GPU, and what its driver refuses. Only where there is a GPU.
PROBES = [name for name in COMPILED if CATALOGUE[name].kind == "probe"] if TARGET.has_gpu else []
REFUSALS = [f"{RESULTS}/probe/refusals.json"] if TARGET.has_gpu else []

if TARGET.has_gpu:

    rule probe:
        input:
            kernel_files,
            modules("probe"),
            rules.compile.output.cubin,
            build=rules.compile.output.record,
        output:
            f"{RESULTS}/probe/{{variant}}.json",
        log:
            f"{RESULTS}/logs/probe/{{variant}}.log",
        wildcard_constraints:
            # Snakemake appends what follows the wildcard, so no $ here.
            variant=r"(?!refusals\b)[A-Za-z][A-Za-z0-9_]*",
        conda:
            "../../environment.yml"
        # All cores of the run, so that no compiler runs beside a measurement.
        threads: 4096
        resources:
            gpu=1,
        params:
            device=TARGET.fingerprint,
            entry=entry_text,
        shell:
            "python3 -m gemmlab probe --variant {wildcards.variant:q} --build {input.build:q} --output {output:q}"
            " 2>&1 | tee {log:q}"

    rule refusals:
        input:
            modules("refusals"),
        output:
            REFUSALS,
        log:
            f"{RESULTS}/logs/probe/refusals.log",
        conda:
            "../../environment.yml"
        resources:
            gpu=1,
        params:
            device=TARGET.fingerprint,
            nvcc=config["nvcc"],
        shell:
            "python3 -m gemmlab refusals --nvcc {params.nvcc:q} --output {output:q} 2>&1 | tee {log:q}"
