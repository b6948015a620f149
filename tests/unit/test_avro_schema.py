"""A schema that would use up the stack, or the time, is refused before a row is read by it."""

import pytest
from tests.builders.bombs import container, record

from lakesweep.formats import avro
from lakesweep.formats.avro_schema import check_schema

NODE = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}


def nested(levels, inner="int"):
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return record(inner)


def doubling(steps):
    """Each record holds the one before it twice, down to one without any bytes."""
    first = {"type": "record", "name": "n0", "fields": [{"name": "x", "type": "null"}]}
    kinds = [first] + [
        {"type": "record", "name": f"n{n}", "fields": [{"name": side, "type": f"n{n - 1}"} for side in "ab"]}
        for n in range(1, steps)
    ]
    return {
        "type": "record",
        "name": "top",
        "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)],
    }


HOSTILE = {
    "holds itself": NODE,
    "holds itself in a list": record({"type": "array", "items": NODE}),
    "holds itself in a map, by its full name": {
        "type": "record",
        "name": "a.b.node",
        "fields": [{"name": "next", "type": {"type": "map", "values": "a.b.node"}}],
    },
    "holds itself without an end": {"type": "record", "name": "r", "fields": [{"name": "r", "type": "r"}]},
    "three hundred levels": nested(300),
    "holds itself as a request": {**NODE, "type": "request"},
    "doubles": doubling(40),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("read", [avro.read_records, lambda data: avro.read_columns(data, {"next": ("next",)})])
def test_a_schema_that_no_metadata_has_is_refused(kind, read):
    # A million levels of rows: without the check the process ends here.
    data = container("null", b"\x02" * 1_000_000 + b"\x00", HOSTILE[kind])
    with pytest.raises(avro.ContainerError, match="schema"):
        read(data)


def test_schemas_that_name_a_type_again_and_of_many_columns_are_read():
    twice = record({"type": "record", "name": "inner", "fields": [{"name": "x", "type": ["null", "long"]}]})
    twice["fields"].append({"name": "b", "type": ["null", "inner"]})
    check_schema(twice)
    check_schema({"type": "record", "name": "r", "fields": [{"name": f"c{n}", "type": "long"} for n in range(100_000)]})
    check_schema(nested(20))
    check_schema("string")


def test_a_record_called_record_is_no_record_that_holds_itself():
    paimon = record({"type": "record", "name": "org.apache.paimon.avro.generated.record", "fields": []})
    paimon["name"] = "record"
    check_schema(paimon)
    paimon["fields"].append({"name": "again", "type": {"type": "array", "items": "x.record"}})
    with pytest.raises(avro.ContainerError, match="contains itself"):
        check_schema(paimon)
