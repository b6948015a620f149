"""Which partitions have expired. Pure: no I/O, no clock, no logging.

Values stay typed tuples. A DATE or TIMESTAMP key is a point in time by its type; Java only ever parses text and never
expires those. A value that is NULL or cannot be read keeps its partition. A partition's time is a wall-clock time, and
so is the creation time that `update-time` goes by; whose wall clock, nothing says. So a partition is due if it has
expired everywhere on earth. One that has expired only by the wall clock of this service (`TZ`) goes earlier only if two
witnesses agree: the writers' own offset, known from commits that say both the local time of a file and the time of the
commit, and storage, where none of its files may be younger than the expiration time.

Text is read by Java's date patterns, as far as tables use them, as a wall-clock time without a zone. Text that does not
fit gives None, and then the partition never expires; a pattern that is not understood raises, so that a person hears of
it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from lakesweep.formats.paimon.binaryrow import OutsideCalendar, Timestamp, Value, sort_key
from lakesweep.formats.paimon.options import PartitionExpiry
from lakesweep.formats.paimon.schema import Field, Kind
from lakesweep.model.files import Tally

ParseTime = Callable[[str], datetime | None]

_DEFAULT = re.compile(
    r"(?P<y>\d{1,10})-(?P<M>\d{1,2})-(?P<d>\d{1,2})"
    r"(?: (?P<H>\d{1,2}):(?P<m>\d{1,2}):(?P<s>\d{1,2})(?:\.(?P<S>\d{1,9}))?)?"
)
_LETTERS = "yuMdHmsSn"
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One live partition: the bytes that name it in manifests, and what they mean."""

    raw: bytes
    values: tuple[Value, ...]
    path: str
    """Its directory, for people only."""
    updated: datetime | None
    """The newest creation time of its files, a writer's wall clock; None when a file does not say."""
    holds: Tally = field(default_factory=Tally)
    """Its live files, for people only."""
    stored: datetime | None = None
    """When storage last took a file of it; None where nobody asked or storage does not say."""


_WESTERNMOST, _EASTERNMOST = timedelta(hours=-12), timedelta(hours=14)
"""Zones of the earth: what has expired on the first's clock has expired everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Partitions to drop, in order, and why nothing can be dropped if that is so."""

    partitions: tuple[Partition, ...] = ()
    problem: str | None = None


def find_due(
    partitions: Sequence[Partition],
    keys: Sequence[Field],
    expiry: PartitionExpiry,
    now: datetime,
    writers: timedelta | None = None,
) -> Due:
    """The expired partitions, smallest values first, at most `expiration-max-num`. `writers` is the westernmost offset
    from UTC that writers had."""
    if expiry.time is None or not keys:
        return Due()
    if expiry.in_metastore:
        return Due(problem="its partitions are kept in a metastore (metastore.partitioned-table): drop them there")
    here = now.astimezone().replace(tzinfo=None) - expiry.time
    everywhere = _utc(now) + _WESTERNMOST - expiry.time
    # Outside the zones a writer's clock is wrong, or it made its files long before it committed them.
    in_a_zone = writers if writers is not None and _WESTERNMOST <= writers <= _EASTERNMOST else None
    theirs = None if in_a_zone is None else _utc(now) + in_a_zone - expiry.time
    try:
        when = _strategy(keys, expiry)
    except ValueError as exc:
        return Due(problem=str(exc))

    def is_due(partition: Partition) -> bool:
        moment = when(partition)
        if not _before(moment, here):
            return False
        if _before(moment, everywhere) or _is_instant(keys, expiry):
            return True
        rested = partition.stored is not None and expiry.time is not None and partition.stored <= now - expiry.time
        return rested and theirs is not None and _before(moment, theirs)

    gone = [partition for partition in partitions if is_due(partition)]
    gone.sort(key=lambda partition: [(value is not None, sort_key(value)) for value in partition.values])
    return Due(partitions=tuple(gone[: expiry.max_num]))


def unsure(
    partitions: Sequence[Partition], keys: Sequence[Field], expiry: PartitionExpiry, now: datetime
) -> list[Partition]:
    """Those that have expired in some zone of the earth and not in every one."""
    if expiry.time is None or expiry.in_metastore or not keys or _is_instant(keys, expiry):
        return []
    try:
        when = _strategy(keys, expiry)
    except ValueError:
        return []
    first, last = (_utc(now) + zone - expiry.time for zone in (_WESTERNMOST, _EASTERNMOST))
    return [one for one in partitions if _before(when(one), last) and not _before(when(one), first)]


def _utc(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(tzinfo=None)


def _is_instant(keys: Sequence[Field], expiry: PartitionExpiry) -> bool:
    by_first_key = expiry.strategy == "values-time" and expiry.pattern is None
    return by_first_key and keys[0].type.kind is Kind.TIMESTAMP_LTZ


def _before(moment: datetime | None, border: datetime) -> bool:
    return moment is not None and moment < border


def _strategy(keys: Sequence[Field], expiry: PartitionExpiry) -> Callable[[Partition], datetime | None]:
    if expiry.strategy == "update-time":
        return lambda partition: partition.updated
    if expiry.strategy != "values-time":
        raise ValueError(f"partition.expiration-strategy {expiry.strategy!r} is not understood")
    parse = time_parser(expiry.formatter) if expiry.formatter else default_time
    if expiry.pattern is None:
        first = keys[0]
        return lambda partition: _value_time(partition.values[0], first, parse)
    fill = _filler(keys, expiry.pattern)

    def patterned(partition: Partition) -> datetime | None:
        text = fill(partition)
        return parse(text) if text is not None else None

    return patterned


def _value_time(value: Value, key: Field, parse: ParseTime) -> datetime | None:
    match value:
        case None:
            return None
        case Timestamp():
            return _wall_clock(value, key)
        case date():
            return datetime.combine(value, time())
        case _:
            return parse(_plain(value, key))


def _filler(keys: Sequence[Field], pattern: str) -> Callable[[Partition], str | None]:
    """Puts values into `$dt $hour:00:00`; of keys that begin alike the longest name counts."""
    index = {key.name: position for position, key in enumerate(keys)}
    longest_first = sorted(index, key=len, reverse=True)
    variable = re.compile(r"\$(" + "|".join(re.escape(name) for name in longest_first) + ")")
    used = [index[name] for name in variable.findall(pattern)]
    if not used:
        raise ValueError(f"partition.timestamp-pattern {pattern!r} names none of the partition keys")

    def fill(partition: Partition) -> str | None:
        if any(partition.values[position] is None for position in used):
            return None
        return variable.sub(
            lambda found: _plain(partition.values[index[found.group(1)]], keys[index[found.group(1)]]), pattern
        )

    return fill


def _plain(value: Value, key: Field) -> str:
    match value:
        case Timestamp():
            moment = _wall_clock(value, key)
            return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _wall_clock(value: Timestamp, key: Field) -> datetime | None:
    try:
        moment = value.moment()
        if key.type.kind is Kind.TIMESTAMP_LTZ:
            return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
    except (OutsideCalendar, OverflowError):  # the zone may bring it over the edge
        return None
    return moment


def check_is_due(last: datetime | None, interval: timedelta, now: datetime) -> bool:
    return last is None or now - last >= interval


def default_time(text: str) -> datetime | None:
    """`2024-1-1` or `2024-01-01 10:20:30.5`. Overlong parts carry over, as in Java: hour 24 is the next day."""
    found = _DEFAULT.fullmatch(text)
    if not found:
        return None
    part = {name: int(value) if value else 0 for name, value in found.groupdict().items()}
    years, month = divmod(part["M"] - 1, 12)
    try:
        first = datetime(part["y"] + years, month + 1, 1)  # noqa: DTZ001 - partition values have no zone
        return first + timedelta(days=part["d"] - 1, hours=part["H"], minutes=part["m"], seconds=part["s"])
    except (ValueError, OverflowError):
        return None


def time_parser(pattern: str) -> ParseTime:
    """A parser for a `java.time.format.DateTimeFormatter` pattern. Raises ValueError for one we do not understand."""
    expression = re.compile(_regex(pattern))
    named = set(expression.groupindex)
    if not {"M", "d"} <= named or not {"y", "u"} & named:
        raise ValueError(f"the pattern {pattern!r} does not give a complete date")

    def parse(text: str) -> datetime | None:
        found = expression.fullmatch(text)
        return _moment(found.groupdict()) if found else None

    return parse


def _regex(pattern: str) -> str:
    pieces = []
    seen: set[str] = set()
    for token in _TOKEN.finditer(pattern):
        quoted, letter, other = token.groups()
        if quoted is not None:
            pieces.append(re.escape(quoted.replace("''", "'") or "'"))
        elif letter:
            if letter not in _LETTERS or letter in seen:
                raise ValueError(f"the letter {letter!r} in the pattern {pattern!r} is not understood")
            seen.add(letter)
            pieces.append(f"(?P<{letter}>{_digits(letter, len(token.group()), pattern)})")
        elif other in "[]":
            pieces.append("(?:" if other == "[" else ")?")
        elif other in "#{}":
            raise ValueError(f"the character {other!r} in the pattern {pattern!r} is reserved")
        else:
            pieces.append(re.escape(other))
    try:
        re.compile("".join(pieces))
    except re.error as exc:
        raise ValueError(f"the pattern {pattern!r} is not well-formed: {exc}") from exc
    return "".join(pieces)


def _digits(letter: str, count: int, pattern: str) -> str:
    """One letter takes any number of digits, two or more exactly as many; three months are a name."""
    if letter in "Mdhms" and count > 2:
        raise ValueError(f"the pattern {pattern!r} contains names of days or months; only numbers are supported")
    if letter in "Sn":
        return rf"\d{{{count}}}" if letter == "S" else r"\d{1,9}"
    return r"\d{1,4}" if count == 1 else rf"\d{{{count}}}"


def _moment(part: dict[str, str | None]) -> datetime | None:
    year = part.get("y") or part.get("u") or ""
    fraction = (part.get("S") or "0").ljust(9, "0")
    try:
        return datetime(  # noqa: DTZ001 - partition values have no zone
            2000 + int(year) if len(year) == 2 else int(year),
            int(part["M"] or 0),
            int(part["d"] or 0),
            int(part.get("H") or 0),
            int(part.get("m") or 0),
            int(part.get("s") or 0),
            int(fraction[:6]),
        )
    except ValueError:
        return None
