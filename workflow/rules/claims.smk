# claims: verdicts on the articles' claims, their contradictions and tables, and each variant's story.
rule claims:
    input:
        lambda wildcards: all_results(wildcards),
        "config/claims.yaml",
        modules("claims"),
    output:
        multiext(
            f"{RESULTS}/tables/",
            "claims.csv",
            "contradictions.csv",
            "story.csv",
            "article_a.csv",
            "article_b.csv",
            "article_c.csv",
        ),
    log:
        f"{RESULTS}/logs/claims.log",
    conda:
        "../../environment.yml"
    params:
        results=results_folder,
        settings=settings("headline_shape", "variants"),
        asked_for=tables_asked_for,
    shell:
        "python3 -m gemmlab claims --results {params.results:q} --settings {params.settings:q} 2>&1 | tee {log:q}"
