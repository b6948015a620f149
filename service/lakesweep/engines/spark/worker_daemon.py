"""The process that Spark forks its Python workers from, in a session on this machine that this service has started.

It imports what every task needs before there is a worker. So all workers share the pages of that, and none of them
imports it again. A fork takes only one thread along, so nothing is opened here that works in threads: no DuckDB, no
store, no event loop.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module

from lakesweep.engines import without_pandas

MODULE = "lakesweep.engines.spark.worker_daemon"
_NEEDED = (
    "pyspark.daemon",
    "lakesweep.engines.spark.scratch_files",
    "lakesweep.engines.spark.scratch_objects",
    "lakesweep.engines.spark.sides",
    "lakesweep.formats.registry",
    "lakesweep.storage.registry",
)


def prepare() -> None:
    """Import everything, and set it aside: workers that look for garbage among it would copy its pages."""
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else numpy starts a thread for each core
    without_pandas.spare()
    for name in _NEEDED:
        import_module(name)
    gc.freeze()
    gc.enable()


def main() -> None:
    """In place of Spark's own daemon, which takes its arguments from the command line."""
    prepare()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
