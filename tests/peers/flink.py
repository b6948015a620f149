"""A Flink job as a peer: it writes the numbers 1, 2, 3, … to a table as a stream, and ends with a savepoint.

See FlinkStream.java. Flink runs inside one Java process, without a cluster.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.peers import jars

_SOURCE = Path(__file__).with_name("FlinkStream.java")
_OPENED = ("util", "nio", "lang", "net", "time", "util.concurrent")
_COMMITS = 3
_TIMEOUT_SECONDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkStream:
    """One stream into the table `db.t` of a catalog that SQL describes."""

    connector: str
    """A set of jars."""
    catalog: str
    """The properties of the catalog, as SQL has them."""
    commits: Path
    """The directory that gets a file with each commit."""
    name: str
    """What those files are called."""
    savepoints: Path

    def run(self, savepoint: str | None = None) -> str:
        """Write until there are some more commits, on from a savepoint if there is one. Returns the savepoint at the
        end: what was written last is known to it alone."""
        statement = f"CREATE CATALOG lake WITH ({self.catalog})"
        where = [statement, "t", str(self.commits), self.name, str(_COMMITS), str(self.savepoints)]
        where += [savepoint] if savepoint else []
        opened = [word for name in _OPENED for word in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")]
        classpath = jars.classpath(*jars.jars("flink"), *jars.jars(self.connector), *_hadoop())
        command = [jars.java(), "-Xmx900m", *opened, "-cp", classpath, str(_SOURCE), *where]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS, cwd=self.savepoints.parent
        )
        told = [line for line in done.stdout.splitlines() if line.startswith("SAVEPOINT ")]
        if done.returncode or not told:
            raise RuntimeError(f"the Flink job failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return told[-1].removeprefix("SAVEPOINT ")


def _hadoop() -> list[Path]:
    """Hadoop's classes come with the installed Spark."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return sorted((Path(spark.origin).parent / "jars").glob("hadoop-client-*.jar"))
