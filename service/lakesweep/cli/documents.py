"""`--json`: one document on standard output, written as it comes, so that a plan of any length fits in memory.

The shape of each table's part is `cleanup.report`'s; this module only writes it. The document is closed whatever
happens, so what was written is always valid JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from lakesweep.cleanup import report
from lakesweep.model.run import CleanupRun

if TYPE_CHECKING:
    import pyarrow as pa

_HOLE = "\x00files\x00"
"""Stands where the files go until they are written. No text of a document holds a NUL."""


class Array:
    """The elements of `{"name": [...]}`, one line each."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._empty = True

    def add(self, element: Mapping[str, object]) -> None:
        self._begin()
        self._out.write(dumps(element))

    async def add_plan(self, run: CleanupRun, batches: AsyncIterator[pa.RecordBatch]) -> None:
        """Write one table's plan with all of its files, one batch in memory at a time."""
        from lakesweep.cleanup import arrow_json  # noqa: PLC0415 - pyarrow takes longer to import than `--help` to print

        document = report.plan_document(run, ())
        hole = {**document, "orphans": {**document["orphans"], "files": _HOLE}}
        before, after = dumps(hole).split(dumps(_HOLE))
        self._begin()
        self._out.write(f"{before}[")
        files = Array(self._out)
        try:
            async for batch in batches:
                files._extend(arrow_json.plan_elements(batch))
        finally:
            self._out.write(f"]{after}")

    def _extend(self, elements: str) -> None:
        """Write elements that are text already, each behind a comma."""
        self._out.write(elements[1:] if self._empty else elements)
        self._empty = self._empty and not elements

    def _begin(self) -> None:
        self._out.write("\n" if self._empty else ",\n")
        self._empty = False


@contextmanager
def array(name: str, out: TextIO) -> Iterator[Array]:
    out.write(f"{{{dumps(name)}: [")
    try:
        yield Array(out)
    finally:
        out.write("\n]}\n")
        out.flush()


def write(value: object) -> None:
    print(dumps(value), file=sys.stdout)


def write_array(name: str, elements: Iterable[Mapping[str, object]]) -> None:
    with array(name, sys.stdout) as written:
        for one in elements:
            written.add(one)


def dumps(value: object) -> str:
    """JSON on one line, in plain ASCII: it survives every locale and file names that are not UTF-8."""
    return json.dumps(value)
