"""The commands of `lakesweep` inside a Spark job or a notebook: they use the session that is there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lakesweep.cli import main as commands

_KIND = "LAKESWEEP_ENGINE__KIND"
_MASTER = "LAKESWEEP_ENGINE__SPARK__MASTER"


def main(arguments: Sequence[str]) -> int:
    """Run a command with the session of this process, started as its platform does it. Returns the exit code.

    Tables are planned on Spark unless the environment names another engine: whoever submits a job wants its cluster.
    """
    from lakesweep.engines.spark.backends import adopt  # noqa: PLC0415 - heavy

    os.environ.setdefault(_KIND, "spark")
    os.environ[_MASTER] = adopt()
    return commands.main(arguments)
