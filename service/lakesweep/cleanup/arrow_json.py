"""Columns as text: times and JSON strings of whole Arrow columns, and all of them as one run of bytes.

Pure. Made for lines of which there are as many as files: nothing here makes a Python object per row.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED = r"[^ !#-\[\]-~]"
"""What `json.dumps` does not write as it stands."""
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, in milliseconds since 1970."""


def joined(texts: pa.Array) -> pa.Buffer:
    """All texts, one right behind the other, in UTF-8. None of them may be null."""
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "")
    return whole[0].as_buffer()


def json_strings(texts: pa.Array) -> pa.Array:
    """Each as `json.dumps` writes it, in plain ASCII; null as `null`."""
    if texts.null_count == len(texts):
        return pa.repeat(pa.scalar("null"), len(texts))
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    if not _plain(texts.drop_null()):
        odd = pc.or_(pc.match_substring_regex(texts, _ESCAPED), pc.invert(pc.string_is_ascii(texts)))
        odd = pc.fill_null(odd, False)
        written = [json.dumps(text) for text in texts.filter(odd).to_pylist()]
        quoted = pc.replace_with_mask(quoted, odd, pa.array(written, pa.string()))
    return pc.fill_null(quoted, "null")


def _plain(texts: pa.Array) -> bool:
    """Has none of them anything to escape? Asked of all at once, which is far cheaper than of each."""
    if not pc.all(pc.ascii_is_printable(texts)).as_py():
        return False
    together = joined(texts).to_pybytes()
    return b'"' not in together and b"\\" not in together


def json_repeated(texts: pa.Array) -> pa.Array:
    """The same for a column with few different texts and no null."""
    encoded = texts.dictionary_encode()
    return json_strings(encoded.dictionary).take(encoded.indices)


def json_times(moments: pa.Array) -> pa.Array:
    """Each as `report.iso_utc` writes it, in quotes; null as `null`. ValueError if there is no such date."""
    check_times(moments)
    # Without its zone, which is UTC: looking that up costs more than all the rest.
    texts = moments.view(pa.timestamp("ms")).cast(pa.string())
    dated = pc.binary_replace_slice(texts, start=10, stop=11, replacement="T")
    return pc.fill_null(pc.binary_join_element_wise('"', dated, 'Z"', ""), "null")


def check_times(moments: pa.Array) -> None:
    """Raise ValueError unless each is in the years that a `datetime` has."""
    span = pc.min_max(moments.view(pa.int64())).as_py()
    for moment in span.values():
        if moment is not None and not _FIRST_TIME <= moment <= _LAST_TIME:
            raise ValueError(f"a time of {moment} ms since 1970 is not a date")


def plan_elements(rows: pa.RecordBatch) -> str:
    """What `report.orphan_document` gives for each row, as `json.dumps` writes it, each behind `,` and a new line."""
    texts = pc.binary_join_element_wise(
        ',\n{"path": ',
        json_strings(rows.column("path")),
        ', "size_bytes": ',
        rows.column("size_bytes").cast(pa.string()),
        ', "modified_at": ',
        json_times(rows.column("modified_at")),
        ', "kind": ',
        json_repeated(rows.column("kind")),
        ', "reason": ',
        json_repeated(rows.column("reason")),
        "}",
        "",
    )
    return str(joined(texts), "ascii")
