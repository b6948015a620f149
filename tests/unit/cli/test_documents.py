"""`--json` is one valid document, whatever is in it and however it ends."""

import io
import json
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli import examples

from lakesweep.cleanup import plan_file, report
from lakesweep.cli import documents

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns(rows):
    return pa.RecordBatch.from_pylist([asdict(row) for row in rows], plan_file.PLAN_SCHEMA)


async def batches(rows, size=2):
    for first in range(0, len(rows), size):
        yield columns(rows[first : first + size])


@pytest.mark.parametrize("number", [0, 1, 2, 5])
async def test_a_streamed_plan_is_the_document_of_the_whole(number):
    rows = examples.candidates(number)
    out = io.StringIO()
    with documents.array("tables", out) as tables:
        await tables.add_plan(examples.planned(), batches(rows))
        await tables.add_plan(examples.refused(), batches(rows))
    assert json.loads(out.getvalue()) == {
        "tables": [report.plan_document(examples.planned(), rows), report.plan_document(examples.refused(), rows)]
    }


@given(
    paths=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4),
    kind=st.sampled_from(["data", 'of "another" kind']),
    size=st.integers(0, 2**62),
    moment=st.none() | st.integers(0, 2**42).map(lambda number: EPOCH + timedelta(milliseconds=number)),
)
async def test_every_file_is_written_as_json_writes_its_document(paths, kind, size, moment):
    like = replace(examples.candidates(1)[0], kind=kind, size_bytes=size, modified_at=moment)
    rows = [replace(like, path=path) for path in paths]
    out = io.StringIO()
    with documents.array("tables", out) as tables:
        await tables.add_plan(examples.planned(), batches(rows))
    files = ",\n".join(json.dumps(report.orphan_document(row)) for row in rows)
    assert f'"files": [\n{files}]' in out.getvalue()


def test_an_array_without_elements_is_valid():
    out = io.StringIO()
    with documents.array("runs", out):
        pass
    assert json.loads(out.getvalue()) == {"runs": []}


async def test_the_document_is_closed_when_a_plan_cannot_be_read():
    async def broken():
        yield columns(examples.candidates(2))
        raise OSError("gone")

    out = io.StringIO()
    with suppress(OSError), documents.array("tables", out) as tables:
        await tables.add_plan(examples.planned(), broken())
    (table,) = json.loads(out.getvalue())["tables"]
    assert len(table["orphans"]["files"]) == 2
    assert table["orphans"]["count"] == 3


@given(reason=st.text(), path=st.text() | st.just("\udcff"))
async def test_any_text_survives(reason, path):
    out = io.StringIO()
    with documents.array("tables", out) as tables:
        await tables.add_plan(examples.refused(reason=reason), batches([]))
        tables.add({"path": path})
    first, second = json.loads(out.getvalue())["tables"]
    assert first["refused"]["reason"] == reason
    assert second["path"] == path
    assert out.getvalue().isascii()
