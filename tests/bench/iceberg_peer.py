"""Iceberg's own procedures on Spark, in a process of its own, so that its memory can be told from ours.

python -m tests.bench.iceberg_peer WORK FILES     (what `running` starts)
"""

from __future__ import annotations

import functools
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bench.iceberg_lake import EXPIRES_AFTER
from tests.bench.places import AGE
from tests.peers import spark as sparks
from tests.peers.conversation import Conversation, answer_all, talking_to


def heap_gb(files: int) -> int:
    """Spark's heap: enough for a table of so many files."""
    return 3 if files <= 1_000_000 else 9


class IcebergPeer:
    """What the child can be asked for."""

    def __init__(self, conversation: Conversation) -> None:
        self._ask = conversation.ask
        self.pid = conversation.pid

    def register(
        self, catalog: str, warehouse: str, table: str, metadata: str, s3: dict[str, str] | None
    ) -> dict[str, str]:
        """Make the catalog know the table by this metadata, and nothing else; what pyiceberg opens it with."""
        properties: dict[str, str] = self._ask(
            {"register": table, "catalog": catalog, "warehouse": warehouse, "metadata": metadata, "s3": s3}
        )
        return properties

    def remove_orphan_files(self, catalog: str, table: str, *, dry_run: bool, listing_by_prefix: bool) -> list[str]:
        """Iceberg's procedure; the files it found."""
        older = _timestamp(AGE / 2)
        found: list[str] = self._ask(
            {
                "call": f"CALL {catalog}.system.remove_orphan_files(table => '{table}', older_than => {older}, "
                f"dry_run => {str(dry_run).lower()}, prefix_listing => {str(listing_by_prefix).lower()})"
            }
        )
        return found

    def expire_snapshots(self, catalog: str, table: str) -> None:
        """Iceberg's procedure, by the age that our settings use too."""
        older = _timestamp(EXPIRES_AFTER)
        self._ask({"call": f"CALL {catalog}.system.expire_snapshots(table => '{table}', older_than => {older})"})


def _timestamp(ago: timedelta) -> str:
    return f"TIMESTAMP '{datetime.now(UTC) - ago:%Y-%m-%d %H:%M:%S}'"


@contextmanager
def running(work: Path, files: int) -> Iterator[IcebergPeer]:
    """Started now, for tables of up to so many files; ended by closing its input."""
    with talking_to("tests.bench.iceberg_peer", work, str(files)) as conversation:
        yield IcebergPeer(conversation)


def _child(work: Path, files: int) -> None:
    with sparks.session(work, memory=f"{heap_gb(files)}g") as spark:
        answer_all(functools.partial(_serve, spark, {}, work))


def _serve(spark: Any, catalogs: dict[str, sparks.SharedCatalog], work: Path, request: dict[str, Any]) -> Any:
    if "call" in request:
        return [row[0] for row in spark.sql(request["call"]).collect()]
    name = request["catalog"]
    if name not in catalogs:
        s3 = sparks.S3Access(**request["s3"]) if request["s3"] else None
        database = work / f"{name}.db"
        catalogs[name] = sparks.sqlite_catalog(spark, name, database=database, warehouse=request["warehouse"], s3=s3)
        catalogs[name].sql("CREATE NAMESPACE IF NOT EXISTS {c}.db")
    # Not dropped through the catalog: that reads the newest metadata first, which may be gone.
    with closing(sqlite3.connect(work / f"{name}.db")) as database:
        database.execute("DELETE FROM iceberg_tables")
        database.commit()
    catalogs[name].python().register_table(request["register"], request["metadata"])
    return catalogs[name].properties


if __name__ == "__main__":
    _child(Path(sys.argv[1]), int(sys.argv[2]))
