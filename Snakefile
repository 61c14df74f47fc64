# gemmlab: from environment to gate, one rule file a stage (workflow/rules). README.md says how to run it.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")


# Everything is relative to the repository, wherever snakemake is called from; --directory still wins.
workdir: workflow.basedir


# The package beside this file serves the workflow and its jobs.
PACKAGE_PARENT = os.path.join(workflow.basedir, "workflow")
sys.path.insert(0, PACKAGE_PARENT)

from gemmlab import job_environment, live_run
from gemmlab.errors import GemmlabError
from gemmlab.files import read_yaml

job_environment.prepare(PACKAGE_PARENT)

# Read by the package first: what Snakemake says of a faulty file names neither the file nor the line.
CONFIGURATION = Path(workflow.basedir, "config", "config.yaml")
try:
    read_yaml(CONFIGURATION)
    if workflow.is_main_process:
        LIVE_RUN = live_run.announce(Path.cwd(), unlocking="--unlock" in sys.argv)
except GemmlabError as error:
    raise WorkflowError(str(error))


configfile: CONFIGURATION


include: "workflow/rules/common.smk"
include: "workflow/rules/environment.smk"
include: "workflow/rules/compile.smk"
include: "workflow/rules/check.smk"
include: "workflow/rules/count.smk"
include: "workflow/rules/bench.smk"
include: "workflow/rules/profile.smk"
include: "workflow/rules/sanitize.smk"
include: "workflow/rules/probe.smk"
include: "workflow/rules/claims.smk"
include: "workflow/rules/publish.smk"
include: "workflow/rules/gate.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/static_evidence.smk"


rule all:
    default_target: True
    input:
        f"{RESULTS}/gate/all",
        rules.publish.output,


# A variant's name is a target: its own chain and its gate, without the tables of all.
for name in VARIANTS:

    rule:
        name:
            name
        input:
            f"{RESULTS}/gate/{name}",
