"""Lakesweep keeps lakehouse tables clean: it expires snapshots, then deletes what no snapshot references.

The law: a file is deleted only when it is proven unreferenced. Doubt keeps the file.

In Python: `lakesweep.plan(x)`, `lakesweep.run(x, execute=True)`, `lakesweep.explain(path, table=x)` and their async
twins, see `lakesweep.api` and docs/python.md. Everything else here is private and may change with any version.

Layers, imports point down:

    api        the public Python API; `python` is what it is made of
    cli        commands, text and JSON for people and scripts
    daemon     the long-running service; `app.py` puts everything together
    admin      the HTTP API
    engines    find orphans: in this process, or on Spark
    formats    Iceberg, Paimon, Delta: what a table's metadata says
    storage    S3, local disk, memory: what is really stored
    state      runs, leases, journal: what survives a restart
    audit      the record of every decision and what became of it
    cleanup    the algorithm; start reading in `cleanup/cycle.py`
    telemetry  logs and metrics
    settings   every setting, with its unit and reason
    model      the nouns

A new format is a package in `formats`, a new store is a package in `storage`. Each needs one line in its registry and a
parameter in its contract suite under `tests/contract`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakesweep.api import (
        Explanation,
        LakesweepError,
        Plan,
        Refusal,
        Report,
        Results,
        Run,
        Summary,
        aexplain,
        aplan,
        areport,
        arun,
        explain,
        plan,
        report,
        run,
    )

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "LakesweepError",
    "Plan",
    "Refusal",
    "Report",
    "Results",
    "Run",
    "Summary",
    "__version__",
    "aexplain",
    "aplan",
    "areport",
    "arun",
    "explain",
    "plan",
    "report",
    "run",
]


def __getattr__(name: str) -> Any:
    """The API is imported on first use: importing it takes longer than printing `lakesweep --help`."""
    if name in __all__:
        from lakesweep import api  # noqa: PLC0415 - see above

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
