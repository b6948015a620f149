"""Metadata beside a table's own is found wherever it lies now, whatever an inventory of yesterday says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.contract.engine_lake import REF

from lakesweep.cleanup import unlisted
from lakesweep.model.location import Location
from lakesweep.ports.references import References
from lakesweep.ports.table import FileKind, MatchBy, TableState
from lakesweep.storage.memory import Held, MemoryStorage, bucket, forget

AT = datetime(2026, 3, 1, tzinfo=UTC)
OWN = "s3://b/t/metadata/00001.json"


class Signs:
    """Metadata is what lies in a directory of one of these names."""

    match_by = MatchBy.ADDRESS

    def classify(self, path: str) -> FileKind:
        return FileKind(kind="metadata" if {"_delta_log", "metadata", "schema"} & set(path.split("/")[:-1]) else "data")


STATE = TableState(
    ref=REF,
    head=OWN,
    table_uuid=None,
    location=Location.parse("s3://b/t"),
    roots=(Location.parse("s3://b/t"), Location.parse("s3://b/elsewhere")),
    snapshots=(),
    layout=Signs(),
)


@pytest.fixture
def stored():
    """Store some objects beside the table's own."""
    forget("b")

    def store(*paths: str) -> None:
        for path in (OWN, "s3://b/t/data/1.parquet", *paths):
            bucket("b").objects[Location.parse(path).path] = Held(data=b"", modified_at=AT)

    yield store
    forget("b")


def references(*kept: str) -> References:
    return References(retained=kept, expired=(), sources=())


@pytest.mark.parametrize(
    "other",
    [
        "s3://b/t/metadata/00002.json",
        "s3://b/t/_delta_log/0.json",
        "s3://b/t/schema/schema-0",
        "s3://b/elsewhere/_delta_log/0.json",
        "s3://b/elsewhere/metadata/v1.json",
    ],
)
async def test_another_tables_metadata_is_found_in_every_root(stored, other):
    stored(other)
    found = await unlisted.beside_head(MemoryStorage(), STATE)
    assert found == {OWN, other}
    assert await unlisted.unreferenced_metadata(MemoryStorage(), STATE, references(OWN), (), found) == (other,)


async def test_data_is_no_metadata(stored):
    stored("s3://b/t/data/2.parquet", "s3://b/elsewhere/3.parquet")
    found = await unlisted.beside_head(MemoryStorage(), STATE)
    assert await unlisted.unreferenced_metadata(MemoryStorage(), STATE, references(OWN), (), found) == ()


async def test_what_the_inventory_knows_counts_with_its_present_neighbours(stored):
    """It may have been read already, and be gone only because a newer one took its place."""
    known, newer = "s3://b/t/data/inner/metadata/1.json", "s3://b/t/data/inner/metadata/2.json"
    stored(newer)
    found = await unlisted.unreferenced_metadata(MemoryStorage(), STATE, references(OWN), (known,), frozenset())
    assert found == (known, newer)


async def test_what_the_table_keeps_is_its_own_however_it_is_spelled(stored):
    stored()
    found = await unlisted.beside_head(MemoryStorage(), STATE)
    spelled = references("s3a://b//t/metadata/00001.json", "only-a-name")
    assert await unlisted.unreferenced_metadata(MemoryStorage(), STATE, spelled, (), found) == ()
