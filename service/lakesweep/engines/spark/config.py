"""Where Spark runs and with which properties. Starts nothing."""

from __future__ import annotations

from dataclasses import dataclass

OWN_PREFIX = "spark.lakesweep."
"""Prefix of the properties in `engine.spark.conf` that are meant for this engine."""
SCRATCH = f"{OWN_PREFIX}scratch"
"""The former name of `engine.spark.scratch`; still used where that is not set."""
PATIENCE = f"{OWN_PREFIX}executorWaitSeconds"
"""How long a job may be without any executor before it is given up."""
SMALL = f"{OWN_PREFIX}smallTableRows"
"""Up to how many listed objects and references together a table is joined in this process instead of on Spark."""

_SMALL_ROWS = 100_000
"""Their join takes some tens of megabytes."""
_PATIENCE_SECONDS = 180.0
"""Longer than a cluster manager takes to start executors."""

ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # If Spark silently skipped a file of references, live files would look unreferenced.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Properties that the plan's correctness depends on."""
DEFAULTS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """Where Spark runs and with which properties. Equal values share one session."""

    master: str = "local[*]"
    remote: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    scratch: str | None = None
    """A place that driver and executors can both write to. None: a directory on this machine."""

    @property
    def where(self) -> str:
        """The address for messages, without what follows a semicolon, which may be a token."""
        return (self.remote or self.master).partition(";")[0]

    @property
    def setting(self) -> str:
        """The setting that has this address."""
        return "engine.spark.master" if self.remote is None else "engine.spark.remote"

    @property
    def local(self) -> bool:
        """Do the workers run on this machine, started by this process?"""
        return self.remote is None and self.master.startswith("local")

    @property
    def patience_seconds(self) -> float:
        """See PATIENCE."""
        return float(dict(self.conf).get(PATIENCE, _PATIENCE_SECONDS))

    @property
    def small_rows(self) -> int:
        """See SMALL."""
        return int(dict(self.conf).get(SMALL, _SMALL_ROWS))

    @property
    def properties(self) -> dict[str, str]:
        """The properties in `conf` that are Spark's own."""
        return {name: value for name, value in self.conf if not name.startswith(OWN_PREFIX)}
