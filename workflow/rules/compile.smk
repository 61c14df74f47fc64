# compile: one PTX for both executors, the cubin that ptxas makes of it, and what it costs in registers and so on.
rule compile:
    input:
        kernel_files,
        modules("compile"),
    output:
        ptx=f"{RESULTS}/build/{{variant}}.ptx",
        cubin=f"{RESULTS}/build/{{variant}}.cubin",
        record=f"{RESULTS}/build/{{variant}}.json",
    log:
        f"{RESULTS}/logs/compile/{{variant}}.log",
    conda:
        "../../environment.yml"
    params:
        architecture=TARGET.architecture,
        nvcc=config["nvcc"],
        toolkit=TARGET.toolkit,
        entry=entry_text,
    shell:
        "python3 -m gemmlab compile --variant {wildcards.variant:q} --architecture {params.architecture:q}"
        " --nvcc {params.nvcc:q} --ptx {output.ptx:q} --cubin {output.cubin:q} --record {output.record:q}"
        " 2>&1 | tee {log:q}"


# The emulator is built once; its file names the library, whose name holds a digest of the C++ sources.
rule emulator:
    input:
        emulator_sources(),
        modules("emulator_build"),
    output:
        f"{RESULTS}/build/emulator.txt",
    log:
        f"{RESULTS}/logs/emulator.log",
    conda:
        "../../environment.yml"
    # As many compilers run as there are cores; more than sixteen have little left to do.
    threads: 16
    shell:
        "python3 -m gemmlab.emulator_build > {output:q} 2> {log:q}"
