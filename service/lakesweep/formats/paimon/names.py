"""Names that Paimon gives to files and directories. Pure. A partition value is never derived from a directory: several
values share one (NULL, empty and blank text), and the spelling depends on options. The way is always row bytes ->
values -> directory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal

from lakesweep.formats.paimon.binaryrow import Timestamp, Value, millis_of_day
from lakesweep.formats.paimon.schema import Field

HINTS = ("EARLIEST", "LATEST")
"""Files beside the snapshots that name the first and the last one. They may be behind."""
_ESCAPED = frozenset([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{}[]^"])
_NUMBERED = re.compile(r"^(snapshot|changelog|schema)-(\d+)$")
_COMPACTED_CHANGELOG = re.compile(r"^(compacted-changelog-[^$]*\$\d+-\d+)-\d+-\d+(\..*)?$")


def numbered(name: str, prefix: str) -> int | None:
    """7 for `snapshot-7`; None for temporary files and everything else."""
    found = _NUMBERED.match(name)
    return int(found.group(2)) if found and found.group(1) == prefix else None


def stored_name(name: str) -> str:
    """The name under which an entry's file is really stored. A compacted changelog is one file for several buckets; all
    but one entry name a slice of it."""
    found = _COMPACTED_CHANGELOG.match(name)
    return f"{found.group(1)}{found.group(2) or ''}" if found else name


def escape(text: str) -> str:
    """As in a directory name: only these characters are spelled %XX, blanks and non-ASCII are not."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def partition_path(keys: Sequence[Field], values: Sequence[Value], *, default: str, legacy: bool) -> str:
    """`dt=2024-01-01/hh=7` without slashes at the ends; empty for a table without partition keys."""
    return "/".join(
        f"{escape(key.name)}={escape(_text(value, key, legacy=legacy) or default)}"
        for key, value in zip(keys, values, strict=True)
    )


def _text(value: Value, key: Field, *, legacy: bool) -> str | None:
    """How a value is spelled; None where the default name stands for it."""
    if value is None:
        return None
    text = _legacy_text(value) if legacy else _cast_text(value, key)
    return text if text.strip() else None


def _legacy_text(value: Value) -> str:  # noqa: PLR0911 - one return per type
    """Java's toString of the internal value."""
    match value:
        case bool():
            return str(value).lower()
        case date():
            return str((value - date(1970, 1, 1)).days)
        case time():
            return str(millis_of_day(value))
        case Timestamp():
            return _java_timestamp(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def _cast_text(value: Value, key: Field) -> str:
    match value:
        case date():
            return value.isoformat()
        case time():
            return value.isoformat("milliseconds") if value.microsecond else value.isoformat("seconds")
        case Timestamp():
            seconds = value.moment().strftime("%Y-%m-%d %H:%M:%S")
            digits = min(key.type.precision, 9)
            fraction = f"{value.millis % 1000 * 1_000_000 + value.nanos:09d}"[:digits]
            return f"{seconds}.{fraction}" if fraction else seconds
        case _:
            return _legacy_text(value)


def _java_timestamp(value: Timestamp) -> str:
    """`2024-01-01T00:00`, with seconds and a fraction in groups of three digits only where they are not zero."""
    moment = value.moment()
    nanos = value.millis % 1000 * 1_000_000 + value.nanos
    text = moment.strftime("%Y-%m-%dT%H:%M")
    if not moment.second and not nanos:
        return text
    text += f":{moment.second:02d}"
    if not nanos:
        return text
    digits = 3 if nanos % 1_000_000 == 0 else 6 if nanos % 1000 == 0 else 9
    return f"{text}.{f'{nanos:09d}'[:digits]}"
