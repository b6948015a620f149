"""Ready file lists: read like a listing, or refused with a reason."""

import asyncio
import gzip
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import inventories
from tests.builders.inventories import HOME, VERSION_COLUMNS, csv_file, parquet_file, plain_file, put, s3_inventory
from tests.builders.stores import LocalStorage

from lakesweep.engines import listing
from lakesweep.engines.inventory import lists
from lakesweep.engines.listing import InventoryShard, RootShard
from lakesweep.model.errors import Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.engine import Inventory
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.storage.memory import MemoryStorage, bucket, forget

MADE = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)
OLD = MADE - timedelta(days=5)
ROOTS = (Location.parse("s3://b/t"),)


@pytest.fixture(autouse=True)
def _empty_buckets():
    for name in ("b", "inventory"):
        forget(name)


def row(path, size=5, modified_at=OLD, etag="e1", **flags):
    return {"path": path, "size_bytes": size, "modified_at": modified_at, "etag": etag, **flags}


async def taken(address, roots=ROOTS, storage=None, **times):
    """The rows of the list at an address."""
    storage = storage or MemoryStorage()
    wanted = Inventory(
        address=Location.parse(address),
        **{"not_before": MADE - timedelta(hours=24), "not_after": MADE + timedelta(hours=24), **times},
    )
    found = await lists.find(storage, wanted, roots)
    rows = []
    for file in found.files:
        shard = InventoryShard(source=replace(found, files=()), file=file, roots=roots)
        async with aclosing(shard.rows(storage)) as batches:
            async for batch in batches:
                assert batch.schema == LISTING_SCHEMA
                rows += batch.to_pylist()
    return rows


WRITERS = {
    "csv": lambda rows: s3_inventory([csv_file(rows)], MADE),
    "parquet": lambda rows: s3_inventory([parquet_file(rows)], MADE, kind="Parquet"),
    "plain": lambda rows: put("s3://inventory/list.parquet", plain_file(rows), MADE),
}


@pytest.mark.parametrize("kind", WRITERS)
async def test_a_list_reads_like_the_listing_it_stands_for(kind):
    rows = [row("s3://b/t/data/x=1/a b+%.data"), row("s3://b/t//é.data", size=0), row("s3://b/t/.hidden/c.data")]
    without_etag = kind == "plain"
    assert await taken(WRITERS[kind](rows)) == [{**one, "etag": None} if without_etag else one for one in rows]


keys = st.lists(
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12), max_size=8, unique=True
)


@pytest.mark.parametrize("kind", WRITERS)
@settings(deadline=None, max_examples=40)
@given(names=keys)
def test_any_key_comes_through_and_only_keys_that_a_listing_shows(kind, names):
    for name in ("b", "inventory"):
        forget(name)
    for name in names:
        put(f"s3://b/t/{name}", name.encode(), OLD)
        put(f"s3://b/t2/{name}", b"x", OLD)

    async def both():
        async with aclosing(RootShard(root=ROOTS[0]).rows(MemoryStorage())) as pages:
            listed = [one async for page in pages for one in page.to_pylist()]
        return listed, await taken(WRITERS[kind](inventories.rows_of_bucket("b")))

    listed, found = asyncio.run(both())
    shown = [one for one in listed if not {".", ".."} & set(one["path"].split("/"))]
    assert [one["path"] for one in found] == [one["path"] for one in shown]
    assert [one["size_bytes"] for one in found] == [one["size_bytes"] for one in shown]


@pytest.mark.parametrize("kind", WRITERS)
async def test_what_is_elsewhere_a_marker_or_newer_than_the_list_is_left_out(kind):
    rows = [
        row("s3://b/t/kept.data"),
        row("s3://b/t10/x.data"),
        row("s3://b/t/sub/", size=0),
        row("s3://b/t/../other/x.data"),
        row("s3://b/t/late.data", modified_at=MADE + timedelta(seconds=1)),
    ]
    assert [one["path"] for one in await taken(WRITERS[kind](rows))] == ["s3://b/t/kept.data"]


async def test_of_many_versions_only_the_latest_that_is_no_delete_marker_counts():
    rows = [
        row("s3://b/t/a.data"),
        row("s3://b/t/a.data", size=9, is_latest=False),
        row("s3://b/t/gone.data", size=None, is_delete_marker=True),
        row("s3://b/t/gone.data", is_latest=False),
    ]
    manifest = s3_inventory([csv_file(rows, VERSION_COLUMNS)], MADE, schema=", ".join(VERSION_COLUMNS))
    assert [(one["path"], one["size_bytes"]) for one in await taken(manifest)] == [("s3://b/t/a.data", 5)]


async def test_local_paths_are_spelled_as_a_listing_spells_them(tmp_path):
    root = tmp_path / "t"
    rows = [row(f"{root}/a.data"), row(f"file:{root}//b.data"), row(f"{root}/../u/c.data")]
    (tmp_path / "list.parquet").write_bytes(plain_file(rows))
    ever = {"not_before": datetime(2000, 1, 1, tzinfo=UTC), "not_after": datetime(2100, 1, 1, tzinfo=UTC)}
    found = await taken(str(tmp_path / "list.parquet"), (Location.parse(str(root)),), LocalStorage(), **ever)
    assert [one["path"] for one in found] == [f"file://{root}/a.data", f"file://{root}/b.data"]


async def test_times_are_rounded_to_the_younger_side_and_unknown_ones_stay_unknown():
    times = pa.array([OLD + timedelta(microseconds=1), None], pa.timestamp("us"))
    table = pa.table({"path": ["s3://b/t/a", "s3://b/t/b"], "size": [1, 2], "last_modified": times})
    found = await taken(put("s3://inventory/list.parquet", inventories.written(table), MADE))
    assert [one["modified_at"] for one in found] == [OLD + timedelta(milliseconds=1), None]


async def test_of_a_folder_the_newest_complete_inventory_is_taken():
    s3_inventory([csv_file([row("s3://b/t/oldest.data")])], MADE - timedelta(days=1))
    s3_inventory([csv_file([row("s3://b/t/newest.data")])], MADE)
    s3_inventory([csv_file([row("s3://b/t/incomplete.data")])], MADE + timedelta(hours=9), checksum=False)
    for folder in (HOME, "s3://inventory/lake", "s3://inventory/"):
        assert [one["path"] for one in await taken(folder)] == ["s3://b/t/newest.data"]


async def test_of_a_folder_of_parquet_files_all_are_taken_but_the_hidden_ones():
    put("s3://inventory/l/part-0.parquet", plain_file([row("s3://b/t/a.data")]), MADE)
    put("s3://inventory/l/sub/part-1.parquet", plain_file([row("s3://b/t/b.data")]), MADE)
    put("s3://inventory/l/_temporary/part-2.parquet", b"not yet", MADE)
    put("s3://inventory/l/_SUCCESS", b"", MADE)
    assert [one["path"] for one in await taken("s3://inventory/l")] == ["s3://b/t/a.data", "s3://b/t/b.data"]


async def test_a_folder_is_as_old_as_its_oldest_file():
    put("s3://inventory/l/part-0.parquet", plain_file([row("s3://b/t/a.data")]), MADE - timedelta(hours=25))
    put("s3://inventory/l/part-1.parquet", plain_file([row("s3://b/t/b.data")]), MADE)
    with pytest.raises(Refused, match=r"s3://inventory/l was made at 2026-02-28 03:00 UTC, longer ago than the grace"):
        await taken("s3://inventory/l")


@pytest.mark.parametrize(
    ("created_at", "code"), [(MADE - timedelta(hours=24, minutes=1), "too_old"), (MADE + timedelta(days=2), "too_new")]
)
async def test_a_list_whose_age_is_not_right_is_refused(created_at, code):
    with pytest.raises(Refused) as caught:
        await taken(s3_inventory([csv_file([])], created_at))
    assert caught.value.code == f"inventory_{code}"


async def test_a_list_of_exactly_the_grace_period_is_taken():
    assert await taken(s3_inventory([csv_file([])], MADE - timedelta(hours=24))) == []


def another_bucket():
    return s3_inventory([csv_file([])], MADE, source_bucket="other")


def several():
    s3_inventory([], MADE, home="s3://inventory/lake/b/daily")
    s3_inventory([], MADE, home="s3://inventory/lake/b/weekly")
    return "s3://inventory/lake"


def incomplete():
    s3_inventory([], MADE, checksum=False)
    return HOME


@pytest.mark.parametrize(
    ("address", "code"),
    [
        (another_bucket, "inventory_elsewhere"),
        (several, "inventory_ambiguous"),
        (incomplete, "inventory_missing"),
        (lambda: "s3://inventory/nothing", "inventory_missing"),
        (lambda: "s3://inventory/nothing/manifest.json", "inventory_missing"),
    ],
)
async def test_a_list_that_is_not_clearly_the_tables_is_refused(address, code):
    with pytest.raises(Refused) as caught:
        await taken(address())
    assert caught.value.code == code


def data_file(data, **changes):
    manifest = s3_inventory([data], MADE, **changes)
    return manifest, f"{HOME}/data/202603010400-0.{'csv.gz' if changes.get('kind', 'CSV') == 'CSV' else 'parquet'}"


def other_bytes():
    manifest, file = data_file(csv_file([row("s3://b/t/a.data")]))
    good = bucket("inventory").objects[Location.parse(file).path].data
    put(file, good[:-1] + bytes([good[-1] ^ 1]))
    return manifest, file, "its MD5 checksum does not match"


def cut():
    manifest, file = data_file(csv_file([row("s3://b/t/a.data")]))
    put(file, bucket("inventory").objects[Location.parse(file).path].data[:-9])
    return manifest, file, "bytes, the inventory says"


def vanished():
    manifest, file = data_file(csv_file([]))
    del bucket("inventory").objects[Location.parse(file).path]
    return manifest, file, "does not exist"


def cut_gzip():
    """Cut before the inventory was made: its checksum is right."""
    return *data_file(gzip.compress(b'"b","t/x","1","2020-01-01T00:00:00.000Z","e","S"\n' * 999)[:-12]), "inventory"


def no_column():
    return *data_file(csv_file([], ("Bucket", "Key")), schema="Bucket, Key"), "it has no column Size, LastModifiedDate"


def no_column_in_parquet():
    return *data_file(inventories.written(pa.table({"key": ["t/a"]})), kind="Parquet"), "no column size, last_modified"


def too_few_values():
    return *data_file(gzip.compress(b'"b","t/a","5"\n')), "Expected 6 columns"


def no_size():
    return *data_file(csv_file([row("s3://b/t/a", size=None)])), "cannot be used as an inventory"


def no_time():
    line = b'"b","t/a","5","yesterday","e","STANDARD"\n'
    return *data_file(gzip.compress(line)), "yesterday"


def no_text():
    return *data_file(gzip.compress(b'"b","t/%FF","5","2020-01-01T00:00:00.000Z","e","S"\n')), "codec can't decode"


def no_parquet():
    put("s3://inventory/l.parquet", b"PAR1 no", MADE)
    return "s3://inventory/l.parquet", "s3://inventory/l.parquet", "Parquet"


def no_address():
    put("s3://inventory/l.parquet", plain_file([row("t/a.data")]), MADE)
    return "s3://inventory/l.parquet", "s3://inventory/l.parquet", "not an absolute address: 't/a.data'"


def times_as_numbers():
    table = pa.table({"path": ["s3://b/t/a"], "size": [1], "last_modified": [1]})
    put("s3://inventory/l.parquet", inventories.written(table), MADE)
    return "s3://inventory/l.parquet", "s3://inventory/l.parquet", "stored as int64, not as a time"


def unknown_format():
    manifest = s3_inventory([], MADE, kind="ORC")
    return manifest, manifest, "written as ORC: only Parquet and CSV"


def changed_manifest():
    manifest = s3_inventory([], MADE)
    put(manifest, bucket("inventory").objects[Location.parse(manifest).path].data + b" ")
    return manifest, manifest, "the checksum in manifest.checksum"


def deep_manifest():
    manifest = put(f"{HOME}/x/manifest.json", b'{"files":' * 100_000)
    return manifest, manifest, "nested too deeply"


def no_manifest():
    manifest = put(f"{HOME}/x/manifest.json", b"{}")
    return manifest, manifest, "not an S3 Inventory manifest"


@pytest.mark.parametrize(
    "damage",
    [
        other_bytes, cut, vanished, cut_gzip, no_column, no_column_in_parquet, too_few_values, no_size, no_time,
        no_text, no_parquet, no_address, times_as_numbers, unknown_format, changed_manifest, deep_manifest, no_manifest,
    ],
)  # fmt: skip
async def test_a_damaged_list_is_one_error_that_names_the_file(damage):
    address, file, why = damage()
    with pytest.raises(Unreadable) as caught:
        await taken(address)
    assert caught.value.address == file
    assert why in caught.value.why


async def test_a_list_without_any_object_of_the_table_is_refused():
    found = listing.Listing(shards=(), at_once=1, inventory="s3://inventory/l")
    with pytest.raises(Refused, match="lists no object of this table"):
        found.check_rows(0)
    found.check_rows(1)
    listing.Listing(shards=(), at_once=1).check_rows(0)
