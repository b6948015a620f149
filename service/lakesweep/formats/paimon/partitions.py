"""Which partitions have expired. Pure: no I/O, no clock, no logging.

Values stay typed tuples. A DATE or TIMESTAMP key is a point in time by its type; Java only ever parses text and never
expires those. A value that is NULL or cannot be read keeps its partition. A partition's time is a wall-clock time, and
so is the creation time that `update-time` goes by; whose wall clock, nothing says. So a partition is due if it has
expired everywhere on earth. One that has expired only by the wall clock of this service (`TZ`) goes earlier only if two
witnesses agree: the writers' own offset, known from commits that say both the local time of a file and the time of the
commit, and storage, where none of its files may be younger than the expiration time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from lakesweep.formats.paimon import partition_time
from lakesweep.formats.paimon.binaryrow import OutsideCalendar, Timestamp, Value, sort_key
from lakesweep.formats.paimon.options import PartitionExpiry
from lakesweep.formats.paimon.schema import Field, Kind
from lakesweep.model.files import Tally


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
    parse = partition_time.time_parser(expiry.formatter) if expiry.formatter else partition_time.default_time
    if expiry.pattern is None:
        first = keys[0]
        return lambda partition: _value_time(partition.values[0], first, parse)
    fill = _filler(keys, expiry.pattern)

    def patterned(partition: Partition) -> datetime | None:
        text = fill(partition)
        return parse(text) if text is not None else None

    return patterned


def _value_time(value: Value, key: Field, parse: partition_time.ParseTime) -> datetime | None:
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
