"""One plan's intermediate rows as Parquet files in a directory, written by Spark's Python workers themselves.

So rows that Python makes do not go through the JVM to be written; it reads only the columns that a join needs. Every
try of a task writes files of its own, and the task that finished hands back a receipt for each: only those are read.
Pages have checksums, which Spark is told to verify.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import lakesweep
from lakesweep.engines.scratch import CHUNK_ROWS, scratch_writer
from lakesweep.engines.spark.errors import carried
from lakesweep.engines.spark.executor import Batches, Choose, Choosing, Work, check_version, numbers_in
from lakesweep.engines.spark.worker_rows import stands_in
from lakesweep.model.errors import EngineFailed

FILED = "name STRING, rows BIGINT"
VERIFIED = {"parquet.page.verify-checksum.enabled": "true"}
"""What Spark must be told when it reads these files."""
_FILED_SCHEMA = pa.schema([("name", pa.string()), ("rows", pa.int64())])


PRINTS = "-prints"
"""The end of the name of a file that has fingerprints alone; see `filing`."""


class Filed(NamedTuple):
    """A file that a task has finished."""

    name: str
    rows: int


class _File:
    """One being filled, in row groups of some size."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._writer: pq.ParquetWriter = scratch_writer(path, schema, checked=True)
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_rows += batch.num_rows
        if self._held_rows >= CHUNK_ROWS:
            self._flush()

    def finish(self) -> Filed:
        self._flush()
        self._writer.close()
        return Filed(self.path.name, self.rows)

    def close(self) -> None:
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._held_rows)
        self.rows += self._held_rows
        self._held, self._held_rows = [], 0


def filing(directory: str, made_by: Work) -> Work:
    """Write all rows that some work makes; what goes out are receipts. Fingerprints and references in full go to files
    of their own, so that a reader of one kind need not read the other."""
    expected = lakesweep.__version__

    def work(rows: Batches) -> Batches:
        check_version(expected)
        files: dict[bool, _File] = {}
        with ExitStack() as opened:
            for batch in made_by(rows):
                if not batch.num_rows:
                    continue
                with _scratch_errors():
                    if (kind := stands_in(batch)) not in files:
                        files[kind] = _opened(directory, PRINTS if kind else "", batch.schema)
                        opened.callback(files[kind].close)
                    files[kind].add(batch)
            with _scratch_errors():
                done = [file.finish()._asdict() for file in files.values()]
        yield pa.RecordBatch.from_pylist(done, schema=_FILED_SCHEMA)

    return work


def accept(receipts: Sequence[Filed], source: Path, target: Path) -> int:
    """Take over the files that have a receipt. Returns how many rows they really hold."""
    target.mkdir()
    found = 0
    for number, receipt in enumerate(receipts):
        file = source / receipt.name
        if file.exists() and pq.read_metadata(file).num_rows == receipt.rows:
            file.rename(target / f"part-{number:05d}{PRINTS if PRINTS in receipt.name else ''}.parquet")
            found += receipt.rows
    return found


def fetching(parts: Sequence[Path], columns: Sequence[str], choosing: Choosing | None = None) -> Work:
    """These columns of part number n: all rows, or those that are chosen by their fingerprints."""
    expected = lakesweep.__version__

    def work(numbers: Batches) -> Batches:
        check_version(expected)
        choose = choosing() if choosing else None
        for number in numbers_in(numbers):
            yield from loaded(parts[number : number + 1], columns, choose)

    return work


def loaded(parts: Sequence[Path], columns: Sequence[str], choose: Choose | None = None) -> Batches:
    """These columns of all parts, in a worker. A row that is not as it was written is an error."""
    for part in parts:
        try:
            with pq.ParquetFile(part, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    yield from _group(file, group, list(columns), choose)
        except FileNotFoundError as exc:
            raise carried(
                EngineFailed(
                    f"{part} was deleted while the plan needed it: let nothing else clean engine.spark.scratch"
                )
            ) from exc
        except (OSError, pa.ArrowException) as exc:
            raise carried(EngineFailed(f"scratch cannot be read: {part}: {exc}")) from exc


def _group(file: pq.ParquetFile, group: int, columns: list[str], choose: Choose | None) -> Batches:
    """Where nothing is chosen, nothing but the fingerprints is read."""
    chosen = None
    if choose is not None:
        prints = file.read_row_group(group, columns=["print"], use_threads=False).column("print").combine_chunks()
        chosen = choose(prints)
        if not chosen.true_count:
            return
    rows = file.read_row_group(group, columns=columns, use_threads=False)
    yield from (rows if chosen is None else rows.filter(chosen)).to_batches()


def _opened(directory: str, ending: str, schema: pa.Schema) -> _File:
    Path(directory).mkdir(parents=True, exist_ok=True)
    return _File(Path(directory) / f"{uuid.uuid4().hex}{ending}.parquet", schema)


@contextmanager
def _scratch_errors() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise carried(EngineFailed(f"scratch cannot be written: {exc}")) from exc
