"""The names by which a directory is recognised as a table, of every format once. Hudi is here to be recognised only.

Each format looks for the others' signs in its own place: files that look like orphans of one may be another's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakesweep.model.table import FormatName

DELTA_LOG = "_delta_log"
HUDI = ".hoodie"
ICEBERG_METADATA = "metadata"
ICEBERG_SUFFIXES = (".metadata.json", ".metadata.json.gz")
"""How metadata files end; `.gz.metadata.json` ends so too."""
PAIMON_SCHEMA = "schema"
PAIMON_SNAPSHOT = "snapshot"
PAIMON_DIRECTORIES = (PAIMON_SCHEMA, PAIMON_SNAPSHOT)

HIDDEN_LOGS = (DELTA_LOG, HUDI)
"""Directories of logs whose name also hides them."""
DIRECTORIES = (DELTA_LOG, ICEBERG_METADATA, HUDI, PAIMON_SCHEMA)
"""One directory of each format that its tables cannot do without."""
PAIMON_FILE = re.compile(rf"(^|/)({PAIMON_SNAPSHOT}/snapshot-\d+|{PAIMON_SCHEMA}/schema-\d+)$")
"""A snapshot or schema of a Paimon table."""
PAIMON_LOG = re.compile(rf"(?:{PAIMON_SNAPSHOT}/(?:snapshot-\d+|LATEST|EARLIEST)|{PAIMON_SCHEMA}/schema-\d+)$")
"""The same and its hints, which may also follow a longer directory name."""
BESIDE_DELTA = re.compile(
    rf"[^/]/{ICEBERG_METADATA}/[^/]+\.metadata\.json(\.gz)?$|(^|/){re.escape(HUDI)}/|{PAIMON_FILE.pattern}"
)
"""Below a Delta table: the metadata of a table in another format. Iceberg's at the root may be its own."""
BESIDE_DELTA_PARTS = (f"/{ICEBERG_METADATA}/", f"{HUDI}/", f"{PAIMON_SNAPSHOT}/snapshot-", f"{PAIMON_SCHEMA}/schema-")
"""Every match of the above holds one of these, and to look for them first is ten times faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What is stored below a table of one format."""

    format: FormatName
    directories: tuple[str, ...]
    suffixes: tuple[str, ...] = ()
    """How the name of an object in them ends; any will do when empty."""
    shown: str
    """The same for people."""


MARKERS = (
    Marker(format=FormatName.DELTA, directories=(DELTA_LOG,), suffixes=(".json", ".parquet"), shown=f"in {DELTA_LOG}/"),
    Marker(
        format=FormatName.PAIMON,
        directories=PAIMON_DIRECTORIES,
        shown=f"in {PAIMON_SCHEMA}/ and {PAIMON_SNAPSHOT}/",
    ),
    Marker(
        format=FormatName.ICEBERG,
        directories=(ICEBERG_METADATA,),
        suffixes=ICEBERG_SUFFIXES,
        shown=f"as {ICEBERG_METADATA}/*.metadata.json",
    ),
)
"""In the order in which a bare location is asked for them: a Delta table may hold Iceberg metadata too."""
