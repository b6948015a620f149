"""The fast reader and fastavro, on damaged bytes: where both give rows, they give the same ones.

The damage is to uncompressed rows, behind every check of the frame: there is nothing left that could notice it but
the two decoders themselves.
"""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import iceberg_manifests as build
from tests.builders.iceberg_manifests import Entry
from tests.builders.paimon_model import MANIFEST_SCHEMA, DataFile

from lakesweep.formats import avro
from lakesweep.formats.iceberg import columns, decode
from lakesweep.formats.paimon import manifests

ROWS = 60
ICEBERG = avro.walk(
    _iceberg := build.manifest_bytes(
        [
            Entry(path=f"s3://lake/{number}.parquet", status=number % 3, columns_with_statistics=number % 4)
            for number in range(ROWS)
        ],
        codec="null",
    )
)
PAIMON = avro.walk(
    _paimon := avro.write(
        MANIFEST_SCHEMA,
        [DataFile(name=f"data-{number}.orc", partition="a").entry(number % 2) for number in range(ROWS)],
        codec="null",
    )
)
NAMES = ("version", "kind", "name", "extra", "external")
WANTED = {name: manifests.COLUMNS[name] for name in NAMES}

changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)


def damaged(data: bytes, container: avro.Container, where: list[tuple[int, int]]) -> bytes:
    """The rows with some bytes changed."""
    plain = bytearray(b"".join(avro.inflate(data, container)))
    for at, value in where:
        plain[at % len(plain)] = value
    return bytes(plain)


def slowly(read) -> pa.Table | None:
    try:
        return read()
    except (avro.ContainerError, pa.ArrowException, UnicodeError):
        return None


@settings(max_examples=200, deadline=None)
@given(changes)
def test_damaged_iceberg_rows_are_refused_or_read_alike(where):
    plain = damaged(_iceberg, ICEBERG, where)
    schema = columns.Plain(ICEBERG.schema, decode._ENTRY_FIELDS)
    fast = columns.read_fast([plain], ROWS, schema)
    slow = slowly(lambda: columns.read_slowly([plain], ROWS, schema))
    if fast is not None and fast.num_rows == ROWS and slow is not None:
        assert fast.select(["status", "path"]).to_pylist() == slow.select(["status", "path"]).to_pylist()


@settings(max_examples=200, deadline=None)
@given(changes)
def test_damaged_paimon_rows_are_refused_or_read_alike(where):
    plain = damaged(_paimon, PAIMON, where)
    data = avro._header({"avro.schema": PAIMON.metadata["avro.schema"], "avro.codec": b"null"}, PAIMON.sync)
    data += avro._long(ROWS) + avro._long(len(plain)) + plain + PAIMON.sync
    read = []
    for large in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(avro, "is_large", lambda _blocks, large=large: large)
            if not large:
                patch.setattr(avro, "decode_columns", None)  # fastavro alone
            read.append(slowly(lambda: avro.read_columns(data, WANTED)))
    fast, slow = read
    if fast is not None and slow is not None:
        assert fast.to_pylist() == slow.to_pylist()


def test_the_rows_are_read_alike_when_nothing_is_damaged():
    schema = columns.Plain(ICEBERG.schema, decode._ENTRY_FIELDS)
    blocks = avro.inflate(_iceberg, ICEBERG)
    fast, slow = columns.read_fast(blocks, ROWS, schema), columns.read_slowly(blocks, ROWS, schema)
    assert fast.select(["status", "path"]).to_pylist() == slow.select(["status", "path"]).to_pylist()
    assert [row["path"] for row in slow.to_pylist()] == [f"s3://lake/{number}.parquet" for number in range(ROWS)]


@pytest.mark.parametrize("promised", [0, 1, ROWS - 1, ROWS + 1, 10 * ROWS])
def test_fastavro_takes_exactly_the_promised_rows_or_none(promised):
    blocks = avro.inflate(_iceberg, ICEBERG)
    assert len(avro.decode_rows(blocks, ICEBERG.schema, ROWS)) == ROWS
    with pytest.raises(avro.ContainerError):
        avro.decode_rows(blocks, ICEBERG.schema, promised)
    with pytest.raises(avro.ContainerError):
        avro.decode_rows([*blocks, b"\x00"], ICEBERG.schema, ROWS)
    assert avro.decode_rows([], ICEBERG.schema, 0) == []
