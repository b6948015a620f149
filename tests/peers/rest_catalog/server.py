"""Iceberg's reference REST catalog as a child process, its tables in SQLite and its warehouse on local disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyiceberg.catalog import Catalog, load_catalog
from tests.peers.jars import classpath, jars, java
from tests.peers.process import running

_PROGRAM = Path(__file__).with_name("RestServer.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestServer:
    """A running server. `uri` may be swapped for a proxy's."""

    uri: str
    warehouse: str

    def python(self, **properties: str) -> Catalog:
        """A pyiceberg client on it."""
        return load_catalog("rest", type="rest", uri=self.uri, **properties)


@contextmanager
def rest_server(work: Path) -> Iterator[RestServer]:
    """Start it in `work`, which also holds the warehouse."""
    port_file = work / "rest.port"
    warehouse = f"file://{work / 'warehouse'}"
    # Local files go through Hadoop classes, which the installed pyspark brings.
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    command = [
        java(),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        classpath(*jars("iceberg-rest"), *hadoop),
        str(_PROGRAM),
        str(work / "rest.db"),
        warehouse,
        str(port_file),
    ]
    with running(command, log=work / "rest.log", ready=port_file.exists):
        yield RestServer(uri=f"http://127.0.0.1:{port_file.read_text()}", warehouse=warehouse)
