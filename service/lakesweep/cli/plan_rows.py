"""The files of a plan as text of its JSON document, whole columns at a time: there may be millions of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup import arrow_json


def elements(rows: pa.RecordBatch) -> str:
    """What `report.orphan_document` gives for each row, as `json.dumps` writes it, each behind `,` and a new line."""
    texts = pc.binary_join_element_wise(
        ',\n{"path": ',
        arrow_json.json_strings(rows.column("path")),
        ', "size_bytes": ',
        rows.column("size_bytes").cast(pa.string()),
        ', "modified_at": ',
        arrow_json.json_times(rows.column("modified_at")),
        ', "kind": ',
        arrow_json.json_repeated(rows.column("kind")),
        ', "reason": ',
        arrow_json.json_repeated(rows.column("reason")),
        "}",
        "",
    )
    return str(arrow_json.joined(texts), "ascii")
