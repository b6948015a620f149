"""Columns as text: exactly what the same values give one by one."""

import json
from datetime import UTC

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.cleanup import arrow_json
from lakesweep.cleanup.report import iso_utc

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["", "plain/path=1", 'a"b', "back\\slash", "\x00\x1f\x7f", "é漢😀", "a b~!#[]"]
)
TIMES = st.datetimes().map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC))


@given(st.lists(st.none() | TEXTS, max_size=8), st.integers(0, 3))
def test_strings_are_written_as_json_writes_them(texts, skipped):
    column = pa.array(texts, pa.string()).slice(skipped)
    assert arrow_json.json_strings(column).to_pylist() == [json.dumps(text) for text in texts[skipped:]]


@given(st.lists(TEXTS, max_size=8))
def test_a_column_of_few_values_is_written_the_same(texts):
    column = pa.array(texts, pa.string())
    assert arrow_json.json_repeated(column).to_pylist() == [json.dumps(text) for text in texts]


@given(st.lists(st.none() | TIMES, max_size=6))
def test_times_are_written_as_in_every_document(moments):
    column = pa.array(moments, pa.timestamp("ms", tz="UTC"))
    assert arrow_json.json_times(column).to_pylist() == [json.dumps(iso_utc(moment)) for moment in moments]


@given(st.lists(TEXTS, max_size=8), st.integers(0, 3))
def test_joined_is_all_of_it_in_order(texts, skipped):
    column = pa.array(texts, pa.string()).slice(skipped)
    assert arrow_json.joined(column).to_pybytes() == "".join(texts[skipped:]).encode()


@pytest.mark.parametrize("odd", range(128))
def test_every_ascii_character_is_escaped_as_json_escapes_it(odd):
    text = f"a{chr(odd)}b"
    assert arrow_json.json_strings(pa.array([text, "plain"])).to_pylist() == [json.dumps(text), '"plain"']


@pytest.mark.parametrize("moment", [-62_135_596_800_001, 253_402_300_800_000])
def test_a_time_that_no_document_can_show_is_refused(moment):
    with pytest.raises(ValueError, match="not a date"):
        arrow_json.json_times(pa.array([None, moment], pa.int64()).cast(pa.timestamp("ms", tz="UTC")))
