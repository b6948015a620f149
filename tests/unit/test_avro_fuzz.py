"""The fast reader against fastavro, on rows of random schemas, whole and damaged.

Where the fast reader gives values they are fastavro's, block by block, to the last byte. It may refuse what fastavro
takes (the caller then asks fastavro); it never takes what fastavro refuses. One thing is left out of the comparison:
whether text that nobody asked for is UTF-8. The fast reader does not look, so fastavro is told that it is bytes.
"""

from __future__ import annotations

import zlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.avro_cases import Blocks, Slots, cases, damaged, damages
from tests.laws import examples
from zlib_ng import zlib_ng

from lakesweep.formats import avro
from lakesweep.formats.avro_columns import Program
from lakesweep.formats.inflate import CODECS, Damaged


def untexted(schema: Any, wanted: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> Any:
    """The same bytes, with all text that is not wanted called bytes."""
    if path in wanted:
        return schema
    if isinstance(schema, list):
        return [untexted(branch, wanted, path) for branch in schema]
    if schema == "string":
        return "bytes"
    if not isinstance(schema, dict):
        return schema
    match schema["type"]:
        case "record":
            fields = [
                {**field, "type": untexted(field["type"], wanted, (*path, field["name"]))} for field in schema["fields"]
            ]
            return {**schema, "fields": fields}
        case "array":
            return {**schema, "items": untexted(schema["items"], wanted, (*path, "[]"))}
        case "map":
            value = untexted(schema["values"], wanted, (*path, "[]"))
            fields = [{"name": "key", "type": "bytes"}, {"name": "value", "type": value}]
            return {"type": "array", "items": {"type": "record", "name": f"pair{id(schema)}", "fields": fields}}
        case _:
            return schema


def by_fastavro(schema: Any, places: Slots, blocks: Blocks) -> dict[str, list[Any]] | None:
    plain = untexted(schema, set(places.values()))
    records = []
    try:
        for block, rows in blocks:
            records += avro.decode_rows([block], plain, rows)
    except avro.ContainerError:
        return None
    return {name: avro.values(records, path) for name, path in places.items()}


def fast(program: Program, blocks: Blocks) -> dict[str, list[Any]] | None:
    found = program.read(blocks)
    return None if found is None else {name: column.to_pylist() for name, column in found.items()}


@settings(max_examples=60, deadline=None)
@given(cases())
def test_whole_rows_are_read_as_fastavro_reads_them(case):
    schema, places, program, blocks = case
    expected = by_fastavro(schema, places, blocks)
    assert expected is not None
    assert fast(program, blocks) == expected


@settings(max_examples=examples(60, soak=1500), deadline=None)
@given(cases(), damages)
def test_damaged_rows_are_refused_or_read_as_fastavro_reads_them(case, damage):
    schema, places, program, whole = case
    blocks = damaged(whole, damage)
    found = fast(program, blocks)
    if found is not None:
        assert found == by_fastavro(schema, places, blocks)


@settings(max_examples=60, deadline=None)
@given(cases(), st.binary(max_size=60), st.integers(0, 5))
def test_noise_is_refused_or_read_as_fastavro_reads_it(case, noise, rows):
    schema, places, program, _ = case
    found = fast(program, [(noise, rows)])
    if found is not None:
        assert found == by_fastavro(schema, places, [(noise, rows)])


def by_zlib(stream: bytes) -> bytes | None:
    try:
        return zlib.decompress(stream, wbits=-15)
    except zlib.error:
        return None


def inflated(stream: bytes) -> bytes | None:
    try:
        return CODECS["deflate"](stream, 1_000_000)
    except (zlib_ng.error, Damaged):
        return None


@settings(max_examples=examples(100, soak=3000), deadline=None)
@given(st.binary(max_size=40), st.integers(1, 60), st.sampled_from([0, 1, 6, 9]), damages, st.integers(0, 4))
def test_a_damaged_stream_is_refused_or_inflated_as_zlib_does_it(text, times, level, damage, strategy):
    """Blocks have no checksum: what zlib refuses must not become rows."""
    packer = zlib.compressobj(level, wbits=-15, strategy=strategy)
    whole = packer.compress(text * times) + packer.flush()
    assert inflated(whole) == text * times
    ((stream, _),) = damaged([(whole, 1)], damage)
    assert inflated(stream) == by_zlib(stream)
