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
from tests.laws import examples

from lakesweep.formats import avro
from lakesweep.formats.avro_columns import compiled
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
WANTED = {name: manifests.COLUMNS[name][0] for name in NAMES}

changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)


def damaged(data: bytes, container: avro.Container, where: list[tuple[int, int]]) -> bytes:
    """The rows with some bytes changed."""
    plain = bytearray(b"".join(avro.inflate(data, container)))
    for at, value in where:
        plain[at % len(plain)] = value
    return bytes(plain)


def slowly(read) -> dict[str, pa.Array] | None:
    try:
        return read()
    except (avro.ContainerError, pa.ArrowException, UnicodeError):
        return None


@settings(max_examples=examples(80, soak=2000), deadline=None)
@given(changes)
def test_damaged_iceberg_rows_are_refused_or_read_alike(where):
    plain = damaged(_iceberg, ICEBERG, where)
    schema = columns.Plain(ICEBERG.schema, decode._ENTRY_FIELDS)
    fast = schema.program.read([(plain, ROWS)])
    if fast is not None:
        assert fast == slowly(lambda: columns.read_slowly([plain], ROWS, schema))


@settings(max_examples=examples(80, soak=2000), deadline=None)
@given(changes)
def test_damaged_paimon_rows_are_refused_or_read_alike(where):
    plain = damaged(_paimon, PAIMON, where)
    fast = compiled(PAIMON.schema, WANTED).read([(plain, ROWS)])
    slow = slowly(lambda: avro.decode_rows([plain], PAIMON.schema, ROWS))
    if fast is not None and slow is not None:  # fastavro also looks at text that nobody asked for
        for name in NAMES:
            assert fast[name].to_pylist() == avro.values(slow, WANTED[name])


def test_the_rows_are_read_alike_when_nothing_is_damaged():
    schema = columns.Plain(ICEBERG.schema, decode._ENTRY_FIELDS)
    fast = avro.read_fast(_iceberg, ICEBERG, schema.program)
    assert fast == columns.read_slowly(avro.inflate(_iceberg, ICEBERG), ROWS, schema)
    assert fast["path"].to_pylist() == [f"s3://lake/{number}.parquet" for number in range(ROWS)]


@pytest.mark.parametrize("promised", [0, 1, ROWS - 1, ROWS + 1, 10 * ROWS])
def test_fastavro_takes_exactly_the_promised_rows_or_none(promised):
    blocks = avro.inflate(_iceberg, ICEBERG)
    assert len(avro.decode_rows(blocks, ICEBERG.schema, ROWS)) == ROWS
    with pytest.raises(avro.ContainerError):
        avro.decode_rows(blocks, ICEBERG.schema, promised)
    with pytest.raises(avro.ContainerError):
        avro.decode_rows([*blocks, b"\x00"], ICEBERG.schema, ROWS)
    assert avro.decode_rows([], ICEBERG.schema, 0) == []
