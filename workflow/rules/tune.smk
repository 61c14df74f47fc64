# tune: sweep the 2D block tile on the GPU. Asked for by name, never part of all; with no GPU it says what it lacks.
rule tune:
    input:
        whole_catalogue,
        modules("tune"),
        "config/tune.yaml",
    output:
        multiext(f"{RESULTS}/tune/", "tune.csv", "tune.png", "tune.svg", "best.yaml"),
        tuned=f"config/tuned/{TARGET.slug}.csv",
    log:
        f"{RESULTS}/logs/tune.log",
    conda:
        "../../environment.yml"
    # All cores of the run, so that nothing runs beside a timing.
    threads: 4096
    resources:
        gpu=1,
    params:
        architecture=TARGET.architecture,
        nvcc=config["nvcc"],
        seed=config["seed"],
        device=TARGET.fingerprint,
        results=results_folder,
    shell:
        "python3 -m gemmlab tune --architecture {params.architecture:q} --nvcc {params.nvcc:q} --seed {params.seed}"
        " --output-dir {params.results:q}/tune --tuned {output.tuned:q} 2>&1 | tee {log:q}"
