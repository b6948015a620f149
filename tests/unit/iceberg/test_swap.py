"""What proves that a catalog's swap is conditional; where nothing does, the expiry is skipped and says why."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from tests.builders.iceberg import Lake, later
from tests.unit.iceberg.expiring import OLD, POLICY, expire

from lakesweep.formats.iceberg import metastores
from lakesweep.formats.iceberg.catalog import CommitStyle, IcebergCatalog
from lakesweep.storage.local.store import LocalStorage, LocalWriter


class OwnCatalog(SqlCatalog):
    """An operator's class: nothing is known about its commit."""


def named(module: str, name: str) -> Any:
    return type(name, (), {"__module__": f"pyiceberg.catalog.{module}"})()


@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        (named("sql", "SqlCatalog"), None),
        (named("memory", "InMemoryCatalog"), None),
        (named("dynamodb", "DynamoDbCatalog"), "cannot commit to a DynamoDB"),
        (named("bigquery_metastore", "BigQueryMetastoreCatalog"), "cannot commit to a BigQuery"),
        (named("noop", "NoopCatalog"), "nothing is known"),
    ],
)
def test_each_catalog_is_judged_by_what_its_swap_compares(catalog: Any, reason: str | None):
    found = metastores.why_unconditional(catalog)
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("endpoint", "word", "proven"),
    [
        ("https://glue.eu-west-1.amazonaws.com", "", True),
        ("https://glue.cn-north-1.amazonaws.com.cn", "", True),
        ("https://vpce-1.glue.eu-west-1.vpce.amazonaws.com", "", True),
        ("https://glue.eu-west-1.api.aws", "", True),
        ("http://127.0.0.1:5000", "", False),
        ("https://amazonaws.com.evil.example", "", False),
        ("http://127.0.0.1:5000", "true", True),
    ],
)
def test_only_amazon_or_the_operator_proves_glues_version_check(endpoint: str, word: str, proven: bool):
    catalog = named("glue", "GlueCatalog")
    catalog.properties = {metastores.CHECKS_VERSION_ID: word}
    catalog.glue = SimpleNamespace(meta=SimpleNamespace(endpoint_url=endpoint))
    assert (metastores.why_unconditional(catalog) is None) == proven


def test_the_names_are_those_of_pyicebergs_classes():
    assert metastores.is_known(InMemoryCatalog("x"))
    source = Path(__import__("pyiceberg.catalog", fromlist=["x"]).__file__).parent
    for full in (
        *metastores._CONDITIONAL,
        metastores._HIVE,
        metastores._GLUE,
        *metastores._READ_ONLY,
    ):
        module, _, name = full.removeprefix("pyiceberg.catalog.").rpartition(".")
        assert f"class {name}(" in (source / f"{module}.py").read_text()


async def test_a_class_made_from_a_known_one_is_not_known(tmp_path: Path):
    lake = Lake.make(tmp_path)
    table = lake.create()
    ids = table.history()
    own = {key: text for key, text in lake.properties.items() if key != "type"}
    lake.properties = own | {"py-catalog-impl": f"{__name__}.OwnCatalog"}
    found = IcebergCatalog("prod", lake.properties, LocalStorage(), LocalWriter())
    assert await found.commit_style() is CommitStyle.UNKNOWN
    handle = await table.open()
    plan = (await handle.load()).plan_expiry(POLICY, later(**OLD))
    assert plan.skipped is not None
    assert "nothing is known" in plan.skipped
    await expire(handle)
    assert table.snapshot_ids() == set(ids)


class Metastore:
    """Speaks as much of the protocol as is used, with a Hive metastore's own answers."""

    def __init__(self, version: str = "4.0.1", *, checks: bool = True) -> None:
        self.version, self.checks = version, checks
        self.table = SimpleNamespace(parameters={"metadata_location": "a", "owner": "x"}, sd="as hive wrote it")
        self.dropped = False

    def getVersion(self) -> str:
        return self.version

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        return copy.deepcopy(self.table)

    def drop_table(self, *_: Any) -> None:
        self.dropped = True

    def alter_table_with_environment_context(self, dbname: str, tbl_name: str, table: Any, context: Any) -> None:
        is_held = context.properties["expected_parameter_key"] == "metadata_location"
        expected = context.properties["expected_parameter_value"]
        if self.checks and is_held and self.table.parameters["metadata_location"] != expected:
            error = RuntimeError()
            error.message = "The table has been modified. The parameter value for key 'metadata_location' is 'b'"
            raise error
        self.table = table


def opened(metastore: Metastore) -> metastores._Metastore:
    return metastores._Metastore(metastore)


def alter(client: metastores._Metastore) -> None:
    new = SimpleNamespace(parameters={"metadata_location": "ours"}, sd="as pyiceberg would have it")
    client.alter_table_with_environment_context("db", "t", new, SimpleNamespace(properties={"DO_NOT": "true"}))


def test_a_hive_swap_states_what_the_pointer_must_still_be():
    metastore = Metastore()
    client = opened(metastore)
    client.get_table("db", "t")
    metastore.table.parameters["metadata_location"] = "b"
    with pytest.raises(CommitFailedException):
        alter(client)
    assert metastore.table.parameters["metadata_location"] == "b"


def test_a_hive_swap_changes_nothing_but_the_pointer():
    metastore = Metastore()
    client = opened(metastore)
    client.get_table("db", "t").parameters["owner"] = "somebody"
    alter(client)
    assert metastore.table.sd == "as hive wrote it"
    assert metastore.table.parameters == {
        "metadata_location": "ours",
        "previous_metadata_location": "a",
        "owner": "x",
    }


def test_a_metastore_is_only_read_locked_and_swapped():
    metastore = Metastore()
    with pytest.raises(PermissionError, match="drop_table"):
        opened(metastore).drop_table("db", "t")
    assert not metastore.dropped


class _Connections:
    def __init__(self, metastore: Metastore) -> None:
        self.metastore = metastore

    def __enter__(self) -> metastores._Metastore:
        return opened(self.metastore)

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("version", "word", "proven"),
    [
        ("4.0.0", "", True),
        ("4.0.1", "", True),
        ("4.0.0-beta-1", "", True),
        ("4.0.0-alpha-2", "", False),
        ("3.0", "", False),
        ("3.1.3", "", False),
        ("2.3.9", "", False),
        ("", "", False),
        ("10.0.0", "", True),
        ("3.1.3000.7.2.18.0-641", "", False),
        ("3.0", "true", True),
        ("3.0", "yes", False),
    ],
)
def test_only_hive_4_or_the_operator_proves_that_the_pointer_is_compared(version: str, word: str, proven: bool):
    catalog: Any = SimpleNamespace(
        properties={metastores.CHECKS_EXPECTED: word}, _client=_Connections(Metastore(version))
    )
    found = metastores._why_not_hive(catalog)
    assert (found is None) == proven
    assert found is None or ("HIVE-26882" in found and metastores.CHECKS_EXPECTED in found)
