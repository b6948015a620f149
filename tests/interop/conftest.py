"""The peers as fixtures: started once per test process, and only when a test asks for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.builders import spark_iceberg
from tests.interop.product import Product
from tests.peers import spark as spark_peer
from tests.peers.nessie import Nessie, nessie
from tests.peers.rest_catalog.server import RestServer, rest_server
from tests.peers.spark_table import SparkTable
from tests.servers import seaweedfs as s3_server

pytest.register_assert_rewrite("tests.interop.judge")

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


@pytest.fixture
def build(lake: spark_peer.SharedCatalog) -> Callable[[str], SparkTable]:
    """Build a table of the zoo, fresh for this test, in a namespace of its own."""
    return lambda name: spark_iceberg.build(lake, name, namespace=f"zoo{next(_numbers)}")


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


@pytest.fixture(scope="session")
def nessie_server(s3_access: spark_peer.S3Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    with nessie(tmp_path_factory.mktemp("nessie"), s3=s3_access, warehouse="s3://lake/nessie") as server:
        yield server
