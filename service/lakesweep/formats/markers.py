"""The names by which a directory is recognised as a table, of every format once. Hudi is here to be recognised only.
Each format looks for the others' signs in its own place: files that look like orphans of one may be another's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.storage import Storage

DELTA_LOG = "_delta_log"
HUDI = ".hoodie"
ICEBERG_METADATA = "metadata"
ICEBERG_SUFFIXES = (".metadata.json", ".metadata.json.gz")
"""How metadata files end; `.gz.metadata.json` ends so too."""
PAIMON_SCHEMA = "schema"
PAIMON_SNAPSHOT = "snapshot"
PAIMON_DIRECTORIES = (PAIMON_SCHEMA, PAIMON_SNAPSHOT)

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
IMMUTABLE_LISTS = re.compile(rf"snap-\d+-\d+-{_UUID}\.avro|(?:manifest-list|index-manifest)-{_UUID}-\d+")
"""Manifest lists of Iceberg and Paimon whose names hold a UUID: no writer uses such a name twice."""

IMMUTABLE_MANIFESTS = re.compile(rf"{_UUID}-m\d+\.avro|manifest-{_UUID}-\d+")
"""Manifests of both, likewise."""

_HIDING = ("_", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What is stored below a table of one format."""

    format: FormatName
    directories: tuple[str, ...]
    """Where its metadata is. Its tables cannot do without the first of them."""
    suffixes: tuple[str, ...] = ()
    """How the name of an object in them ends; any will do when empty."""
    files: str
    """A pattern: metadata with its directory, up to the end of the path. Other formats' tables must not hold any."""
    hints: str = ""
    """A pattern likewise: what lies beside it and alone is no proof."""
    parts: tuple[str, ...]
    """Every path that `files` matches contains one of these; looking for them first is ten times faster."""
    shown: str
    """The same for people."""

    @property
    def is_hidden(self) -> bool:
        return self.directories[0].startswith(_HIDING)


MARKERS = (
    Marker(
        format=FormatName.DELTA,
        directories=(DELTA_LOG,),
        suffixes=(".json", ".parquet"),
        files=rf"{DELTA_LOG}/.*",
        parts=(f"{DELTA_LOG}/",),
        shown=f"in {DELTA_LOG}/",
    ),
    Marker(
        format=FormatName.PAIMON,
        directories=PAIMON_DIRECTORIES,
        files=rf"(?:{PAIMON_SNAPSHOT}/snapshot-\d+|{PAIMON_SCHEMA}/schema-\d+)",
        hints=rf"{PAIMON_SNAPSHOT}/(?:LATEST|EARLIEST)",
        parts=(f"{PAIMON_SNAPSHOT}/snapshot-", f"{PAIMON_SCHEMA}/schema-"),
        shown=f"in {PAIMON_SCHEMA}/ and {PAIMON_SNAPSHOT}/",
    ),
    Marker(
        format=FormatName.ICEBERG,
        directories=(ICEBERG_METADATA,),
        suffixes=ICEBERG_SUFFIXES,
        files=rf"{ICEBERG_METADATA}/[^/]+\.metadata\.json(?:\.gz)?",
        parts=(f"/{ICEBERG_METADATA}/",),
        shown=f"as {ICEBERG_METADATA}/*.metadata.json",
    ),
)
"""In the order in which a bare location is checked for them: a Delta table may hold Iceberg metadata too."""


class Signs:
    """By what each format notices a table of another one inside its own, made of the markers of all formats."""

    def __init__(self, markers: Collection[Marker]) -> None:
        self.hidden_logs = (*(one.directories[0] for one in markers if one.is_hidden), HUDI)
        """Directories of logs whose name also hides them."""
        self.directories = (*(one.directories[0] for one in markers), HUDI)
        """One directory of each format that its tables cannot do without."""
        self.all_directories = (*(name for one in markers for name in one.directories), HUDI)
        strangers = [one for one in markers if one.format is not FormatName.DELTA]
        # Iceberg's metadata at the root of a Delta table may be its own: UniForm writes it.
        above = {FormatName.ICEBERG: "[^/]/"}
        patterns = (f"{above.get(one.format, '(?:^|/)')}{one.files}$" for one in strangers)
        self.beside_delta = re.compile("|".join((*patterns, rf"(?:^|/){re.escape(HUDI)}/")))
        """Below a Delta table: the metadata of a table in another format."""
        self.beside_delta_parts = (*(part for one in strangers for part in one.parts), f"{HUDI}/")
        """Every match of the above holds one of these."""
        visible = [one for one in markers if one.format is not FormatName.ICEBERG and not one.is_hidden]
        self.beside_iceberg_directories = tuple(name for one in visible for name in one.directories)
        patterns = (pattern for one in visible for pattern in (one.files, one.hints) if pattern)
        self.beside_iceberg = re.compile(f"(?:{'|'.join(patterns)})$")
        """In such a directory below an Iceberg table, which may also have a longer name: the metadata of another."""


SIGNS = Signs(MARKERS)


async def beside(
    storage: Storage, root: Location, objects: Iterable[str], *, without: Collection[str] = ()
) -> list[Location]:
    """Directories beside or above the objects in which a table of any format keeps its metadata, as far as they hold
    anything. `without` are the table's own, below the root. On S3 a directory costs one or two requests."""

    async def signs_in(above: str) -> list[Location]:
        wanted = [sign for sign in SIGNS.directories if f"{above}/{sign}".lstrip("/") not in without]
        if not any(level == "" for level in above.split("/")[1:]):  # a key may have two slashes in a row
            wanted = list(await storage.directories_among(root.join(above) if above else root, wanted))
        return [root.join(f"{above}/{sign}".lstrip("/")).as_directory() for sign in wanted]

    signs = await gather_bounded(sorted(root.directories_above(objects)), signs_in)
    places = sorted(place for some in signs for place in some)
    return await reads.those_that(lambda place: reads.any_page(storage, place), places)
