"""A checkpoint is decoded some rows at a time: nothing may fall between two turns."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesweep.formats import columnar
from lakesweep.formats.delta import checkpoint
from lakesweep.formats.delta.paths import Malformed
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import TOLERATED, ReferenceSource

ROOT = Location.parse("s3://lake/t")
ADDS, REMOVES = columnar.ROWS_AT_ONCE + 5, 7
ADD = pa.struct([("path", pa.string())])
REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64())])


def written(**options: int) -> bytes:
    """Adds, then removes, a row each, as checkpoints have them."""
    adds = [{"path": f"live-{number}.parquet"} for number in range(ADDS)]
    removes = [{"path": f"removed-{number}.parquet", "deletionTimestamp": number} for number in range(REMOVES)]
    columns = {
        "add": pa.array([*adds, *[None] * REMOVES], ADD),
        "remove": pa.array([*[None] * ADDS, *removes], REMOVE),
    }
    out = BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def source(data: bytes, delete_before_ms: int) -> ReferenceSource:
    return ReferenceSource(
        location=ROOT.join("_delta_log", "00000000000000000001.checkpoint.parquet"),
        format=FormatName.DELTA,
        kind=checkpoint.KIND,
        retained=True,
        size_bytes=len(data),
        context=checkpoint.context(ROOT, delete_before_ms),
    )


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1000}, {"data_page_size": 512}])
def test_every_row_is_decoded_once(options):
    data = written(**options)
    rows = checkpoint.decode(source(data, delete_before_ms=3), data).to_pylist()
    assert sorted(row["path"] for row in rows if not row[TOLERATED.name]) == sorted(
        f"s3://lake/t/live-{number}.parquet" for number in range(ADDS)
    )
    assert sorted(row["path"] for row in rows if row[TOLERATED.name]) == [
        f"s3://lake/t/removed-{number}.parquet" for number in range(3, REMOVES)
    ]


def test_a_reader_that_ends_early_is_noticed(monkeypatch):
    whole = columnar.ColumnarFile.batches
    monkeypatch.setattr(columnar.ColumnarFile, "batches", lambda *args, **kw: list(whole(*args, **kw))[:-1])
    with pytest.raises(Malformed, match="its footer counts"):
        list(checkpoint.read_in_turns(written(), checkpoint.FILE_COLUMNS))


def test_a_checkpoint_without_files_names_none():
    out = BytesIO()
    pq.write_table(pa.table({"txn": pa.array([{"appId": "a"}])}), out)
    data = out.getvalue()
    assert checkpoint.decode(source(data, delete_before_ms=0), data).num_rows == 0
