# ruff: noqa: INP001 - a script, not a package
"""Lakesweep as a Spark job: `spark-submit lakesweep_job.py run 'acme/*/*' --execute --config s3://ops/lakesweep.toml`.

The arguments are those of the command `lakesweep`. The session of the job, its executors and its connectors are used.
"""

import sys

from lakesweep.cli.job import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:  # some platforms take any exit for a failure
        sys.exit(code)
