"""Keep Spark's Python workers cheap between tasks. Called in a worker at the start of every task; decides nothing.

pyspark prepares every task as if it were the first of its process: it reads the directories of the archives that it
comes from again, once for each package in them, and afterwards looks for garbage among all objects of all imported
modules. Together that took 0.2 CPU seconds for a task, many times what a task of a small table does itself.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport

_REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark in workers that take more than one task."""

_modules = 0
"""How many were imported when objects were last set aside."""


class _Unchanging(zipimport.zipimporter):
    """Finds modules in an archive that stays as it is."""

    def invalidate_caches(self) -> None:
        """There is nothing to read again."""


def lighten() -> None:
    """Save the next tasks of this worker from preparing what has not changed."""
    if os.environ.get(_REUSED):
        _keep_finders()
        _set_aside_modules()


def _keep_finders() -> None:
    """Of the archives that Spark starts a worker with. Others, which jobs may bring along, are left alone."""
    archives = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimport.zipimporter and finder.archive in archives:
            sys.path_importer_cache[path] = _Unchanging(path)


def _set_aside_modules() -> None:
    """Modules stay until the process ends: their objects are no garbage and need not be looked at."""
    global _modules  # noqa: PLW0603  # one for the process, like what it counts
    if len(sys.modules) != _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
