"""The peers as fixtures: started once per test process, and only when a test asks for them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.builders import spark_iceberg
from tests.interop.product import Product
from tests.peers import aging
from tests.peers import spark as spark_peer
from tests.peers.nessie import Nessie, nessie
from tests.peers.rest_catalog.server import RestServer, rest_server
from tests.peers.spark_table import SparkTable
from tests.servers import seaweedfs as s3_server

pytest.register_assert_rewrite("tests.interop.judge")

STRAY = ("data/00000-0-stray-00001.parquet", "metadata/stray-m0.avro", "metadata/snap-1-1-stray.avro")
YOUNG = ("data/00000-0-young-00001.parquet", "metadata/young-m0.avro")
HIDDEN = ("data/_temporary/00000-0-hidden-00001.parquet", ".hidden/stray-m0.avro")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_peer.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> spark_peer.SharedCatalog:
    """A catalog on local disk that Spark and pyiceberg share."""
    work = tmp_path_factory.mktemp("lake")
    return spark_peer.sqlite_catalog(
        spark, "lake", database=work / "catalog.db", warehouse=f"file://{work / 'warehouse'}"
    )


@pytest.fixture(scope="session")
def build(lake: spark_peer.SharedCatalog) -> Callable[[str], SparkTable]:
    """Build a table of the zoo in a namespace of its own."""
    return lambda name: spark_iceberg.build(lake, name, namespace=f"zoo{next(_numbers)}")


@pytest.fixture(scope="session")
def littered(build: Callable[[str], SparkTable]) -> Callable[[str], SparkTable]:
    """Build a table of the zoo, make all of it old, and put files beside it that nothing names."""

    def make(name: str) -> SparkTable:
        table = build(name)
        here = f"{table.root}/{table.name}"
        aging.age(table.root)
        aging.plant(here, *STRAY, *HIDDEN)
        aging.plant(here, *YOUNG, days=0)
        return table

    return make


@pytest.fixture(scope="session")
def look_at(littered: Callable[[str], SparkTable]) -> Callable[[str], SparkTable]:
    """The same, built once for all the tests that only look."""
    return functools.cache(littered)


@pytest.fixture
def product(tmp_path: Path) -> Callable[[SparkTable], Product]:
    """The product on the namespace of a table, its own files in a directory of this test."""
    return lambda table: Product(
        data_dir=tmp_path / "state",
        root=table.root,
        catalog_name=table.catalog.name,
        catalog=table.catalog.properties,
        namespace=table.namespace,
    )


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with rest_server(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.SeaweedFS]:
    with s3_server.seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("lake")
        yield server


@pytest.fixture(scope="session")
def s3_access(s3: s3_server.SeaweedFS) -> spark_peer.S3Access:
    return spark_peer.S3Access(
        endpoint=s3.endpoint_url, access_key=s3_server.ACCESS_KEY, secret_key=s3_server.SECRET_KEY
    )


@pytest.fixture
def s3_store(s3_access: spark_peer.S3Access, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`[storage]` of the settings for that server; the keys come from the usual AWS chain, here the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_access.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_access.secret_key)
    return {"s3": {"endpoint_url": s3_access.endpoint, "region": s3_access.region, "path_style": True}}


@pytest.fixture(scope="session")
def nessie_server(s3_access: spark_peer.S3Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    with nessie(tmp_path_factory.mktemp("nessie"), s3=s3_access, warehouse="s3://lake/nessie") as server:
        yield server
