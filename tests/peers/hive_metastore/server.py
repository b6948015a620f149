"""A real Hive metastore (2.3.10, from pyspark's own jars) as a child process, its tables in Derby."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyiceberg.catalog import Catalog, load_catalog
from tests.peers.jars import java
from tests.peers.ports import free_port
from tests.peers.process import running

_PROGRAM = Path(__file__).with_name("Metastore.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveMetastore:
    """A running metastore."""

    uri: str
    warehouse: str

    def python(self) -> Catalog:
        """A pyiceberg client on it."""
        return load_catalog("hive", type="hive", uri=self.uri, warehouse=self.warehouse)


@contextmanager
def hive_metastore(work: Path) -> Iterator[HiveMetastore]:
    """Start it in `work`, which also holds the warehouse."""
    port = free_port()
    command = [
        java(),
        "-Xmx384m",
        "-XX:+UseSerialGC",
        f"-Dderby.stream.error.file={work / 'derby.log'}",
        "--add-opens=java.base/java.net=ALL-UNNAMED",
        "-cp",
        str(Path(pyspark.__file__).parent / "jars" / "*"),
        str(_PROGRAM),
        str(work),
        str(port),
    ]
    with running(command, log=work / "metastore.log", ready=(work / "ready").exists):
        yield HiveMetastore(uri=f"thrift://127.0.0.1:{port}", warehouse=f"file://{work / 'warehouse'}")
