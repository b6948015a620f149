"""Segments of the audit trail: how records are written and chained, and where segments are stored. Pure.

A table has one chain of segments, numbered from 1 without a gap, because a table has one worker at a time. A segment is
a small object of JSON lines: a head, records, a seal. The head contains the digest of the previous segment; the seal
contains the digest of the lines above it and a signature with the installation's key. So a changed, missing, exchanged
or planted segment is detected. The state store has the newest digest of each table, so a truncated chain is detected
too."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from lakesweep.cleanup.report import iso_utc
from lakesweep.model.location import Location

VERSION = 1
"""The version of the format. A field may be added, never renamed or removed."""

Record = dict[str, Any]
"""One line. Its field `record` names its kind."""


class Broken(ValueError):
    """These bytes are not a valid segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The place of one segment in a table's chain."""

    table: str
    number: int
    previous: str | None
    """Digest of the previous segment; None only for the first."""
    run_id: str
    at: datetime
    passed_over: int = 0
    """How many numbers directly before this one are taken by segments that this installation did not write."""

    def sealed(self, records: bytes, key: bytes | None = None) -> tuple[bytes, str]:
        """The final bytes of a segment from the lines of its records, and the digest of these bytes."""
        head = {
            "record": "segment",
            "version": VERSION,
            "table": self.table,
            "number": self.number,
            "previous": self.previous,
            "run_id": self.run_id,
            "at": iso_utc(self.at),
        }
        if self.passed_over:
            head["passed_over"] = self.passed_over
        body = _line(head) + records
        hashed = hashlib.sha256(body)
        seal = _seal(hashed.hexdigest(), _signature(hashed.hexdigest(), key) if key else None)
        hashed.update(seal)
        return body + seal, hashed.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(Link):
    """One link of a table's chain with its records."""

    records: tuple[Record, ...]

    def encode(self, key: bytes | None = None) -> bytes:
        return self.sealed(lines(self.records), key)[0]

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        """Read a segment back, or raise Broken."""
        body, seal = _parted(data)
        if not body or seal != _seal(digest(body), _claimed(seal)):
            raise Broken("its checksum does not match: it was modified or truncated")
        try:
            head, *records = map(json.loads, body.splitlines())
            if head["version"] != VERSION:
                raise Broken(f"it has version {head['version']}, this program supports {VERSION}")
            return cls(
                table=head["table"],
                number=head["number"],
                previous=head["previous"],
                run_id=head["run_id"],
                at=datetime.fromisoformat(head["at"]),
                passed_over=int(head.get("passed_over", 0)),
                records=tuple(records),
            )
        except (KeyError, TypeError, ValueError) as exc:
            raise Broken(f"it is not a segment: {exc}") from exc


def digest(segment: bytes) -> str:
    """The digest that the next segment and the state store keep."""
    return hashlib.sha256(segment).hexdigest()


def is_signed(segment: bytes, key: bytes) -> bool:
    body, seal = _parted(segment)
    return hmac.compare_digest(_claimed(seal) or "", _signature(digest(body), key))


def claims_signature(segment: bytes) -> bool:
    """Does it have any signature? Segments of older versions have none."""
    return _claimed(_parted(segment)[1]) is not None


def lines(records: Iterable[Record]) -> bytes:
    return b"".join(map(_line, records))


def _seal(sha256: str, signature: str | None = None) -> bytes:
    return _line({"record": "seal", "sha256": sha256} | ({"hmac": signature} if signature else {}))


def _signature(sha256: str, key: bytes) -> str:
    return hmac.digest(key, sha256.encode(), "sha256").hex()


def _claimed(seal: bytes) -> str | None:
    try:
        found = json.loads(seal)
    except ValueError:
        return None
    signature = found.get("hmac") if isinstance(found, dict) else None
    return signature if isinstance(signature, str) else None


def _parted(segment: bytes) -> tuple[bytes, bytes]:
    """The lines above the seal, and the seal."""
    cut = segment.rfind(b"\n", 0, -1) + 1
    return segment[:cut], segment[cut:]


def _line(record: Record) -> bytes:
    # Plain ASCII, so that an object's key that is not UTF-8 survives too.
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


# Where it is stored

_SUFFIX = ".jsonl"
_LONGEST_NAME = 200
"""Maximum length of a directory name, in characters; file systems allow 255 bytes."""
_NOTHING = "%"
"""Replaces an empty part; quoting never produces a lone percent sign."""


def directory(artifacts: Location, table: str) -> Location:
    """`<artifacts>/audit/<tenant>/<dataset>/<table>`, each part quoted; a bare location has no tenant or dataset."""
    return artifacts.join("audit", *map(_quoted, _parts(table)))


def segment_place(artifacts: Location, table: str, number: int) -> Location:
    """The address of a segment. The name is only its number, so that two writers cannot both create it."""
    return directory(artifacts, table).join(segment_name(number))


def segment_name(number: int) -> str:
    """File name of a segment; names sort by number."""
    return f"{number:010}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number in an object's name, if it is the name of a segment."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if name.endswith(_SUFFIX) and stem.isdecimal() and stem.isascii() else None


def table_at(artifacts: Location, place: Location) -> str:
    """The table of a directory, as far as its name shows it: a very long name is cut."""
    below = place.path.removeprefix(artifacts.join("audit").as_directory().path)
    return "/".join(unquote(part) for part in below.split("/") if part != _NOTHING)


def tenant_of(table: str) -> str:
    """The tenant in a table's label; empty for a bare location."""
    return _parts(table)[0]


def _parts(table: str) -> Sequence[str]:
    # The label of a bare location is its address: there is nothing between its first two slashes.
    parts = table.split("/", 2)
    return parts if len(parts) == 3 and all(parts[:2]) else ("", "", table)


def _quoted(part: str) -> str:
    text = quote(part, safe=" =@+,", errors="surrogatepass").replace("~", "%7E") or _NOTHING
    if set(text) == {"."}:
        return text.replace(".", "%2E")
    if len(text) > _LONGEST_NAME:
        return f"{text[:100]}~{hashlib.sha256(part.encode(errors='surrogatepass')).hexdigest()}"
    return text
