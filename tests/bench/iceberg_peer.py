"""Iceberg's own procedures on Spark, in a process of its own, so that its memory can be told from ours.

    python -m tests.bench.iceberg_peer WORK     (what `running` starts)

It takes one request per line on its input and answers with one line.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bench.iceberg_lake import EXPIRES_AFTER
from tests.bench.places import AGE
from tests.peers import spark as sparks

_REPOSITORY = Path(__file__).resolve().parents[2]
MEMORY = "3g"
"""Spark's heap: enough for a million files."""


class IcebergPeer:
    """The other end of the child's pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self._answer()

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

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["answer"]
        raise RuntimeError("Spark ended")


def _timestamp(ago: timedelta) -> str:
    return f"TIMESTAMP '{datetime.now(UTC) - ago:%Y-%m-%d %H:%M:%S}'"


@contextmanager
def running(work: Path) -> Iterator[IcebergPeer]:
    """Started now, ended by closing its input."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "spark.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.iceberg_peer", str(work)],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield IcebergPeer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _child(work: Path) -> None:
    with sparks.session(work, memory=MEMORY) as spark:
        _say({"answer": "ready"})
        catalogs: dict[str, sparks.SharedCatalog] = {}
        for line in sys.stdin:
            try:
                _say({"answer": _serve(spark, catalogs, work, json.loads(line))})
            except Exception as exc:  # noqa: BLE001  # whatever Spark says goes to the other side
                _say({"error": str(exc)})


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


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
