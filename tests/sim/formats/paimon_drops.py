"""The product's own commits to a Paimon table: it drops partitions that have expired. Read back with another reader.

Whatever such a commit says is compared with what it should say: every live file of other partitions is still live,
and index and statistics are carried on.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import fastavro
from tests.sim.formats import paimon_bytes
from tests.sim.formats.paimon_log import BATCH, DataFile, Manifest, Root, State
from tests.sim.formats.paimon_more import LATER_FIELD
from tests.sim.world import Lost, Stored

if TYPE_CHECKING:
    from tests.sim.formats.paimon import PaimonModel

_SLACK = timedelta(minutes=20)
_WEST = timedelta(hours=12)


def take_over(model: PaimonModel, address: str, stored: Stored) -> None:
    """The product has committed. Raises Lost if it committed anything but the drop of expired partitions."""
    log, document = model.log, json.loads(stored.data)
    if any(to < document["id"] - 1 and goes_astray(model, address, document, at) for at, to in model.rollbacks):
        model.astray, model.hides_rollback = address, True
        model.world.seen["a rollback between the last look of a commit and its snapshot file"] += 1
        return
    if goes_astray(model, address, document, model.dropped):
        model.astray = address
        model.world.seen["a table was created anew between the last look of a commit and its snapshot file"] += 1
        return
    before = log.latest()
    behind = before is not None and before.number > document["id"]
    listed = model.world.last.number - 1 if model.world.last else 0
    if behind and any(at[1] >= listed for at in model.forwards):
        # Into the gap before a branch that the table became: nobody's newest, and whole. It goes like the one above.
        model.astray = address
        model.world.seen["a fast-forward between the last look of a commit and its snapshot file"] += 1
        return
    if before is not None and LATER_FIELD in before.document:
        raise Lost(f"{address} drops a field of {before.address} that nobody here knows")
    if before is None or document["id"] != before.number + 1 or document["commitKind"] != "OVERWRITE":
        raise Lost(f"the product wrote {address}, which nobody asked it to")
    base, delta = (_manifests(model, document[name]) for name in ("baseManifestList", "deltaManifestList"))
    live = _live([*base, *delta])
    was = {_identity(one): one for one in before.state.live.values()}
    dropped = {one.partition for key, one in was.items() if key not in live}
    for partition in dropped:
        _check_due(model, partition, [one for one in was.values() if one.partition == partition])
    expected = {key for key, one in was.items() if one.partition not in dropped}
    if live != expected:
        raise Lost(f"{address} has {len(live)} live files, and should have {len(expected)}")
    index = tuple(one for one in before.state.index if one.partition not in dropped)
    _check_carried(model, address, document, before, [one.address.rpartition("/")[2] for one in index])
    state = State(
        manifests=tuple(_listed(model, name, entries) for name, entries in (*base, *delta)),
        live={one.key: one for key, one in was.items() if key in expected},
        index=index,
        index_manifest=log.at(f"manifest/{document['indexManifest']}") if document.get("indexManifest") else None,
        statistics=before.state.statistics if document.get("statistics") else None,
    )
    _stand(model, address, stored, document, state, {one for one in was.values() if one.partition in dropped})
    model.world.seen["the product dropped partitions"] += 1
    model.changed()


def is_ours(root: Root) -> bool:
    """Is it a commit of the product?"""
    return str(root.document["commitUser"]).startswith("lakesweep-")


def goes_astray(model: PaimonModel, address: str, document: dict[str, Any], moment: tuple[int, int] | None) -> bool:
    """Was the table rolled back, or dropped and created anew, after the product had looked at the snapshot before this
    one, which must be the last thing that it does, and before the file was there? No store can make a create
    conditional on another object. What happens at any other moment is something that the product has to notice."""
    put, look = model.world.call, model.world.last
    if moment is None or put is None or look is None or document["commitKind"] != "OVERWRITE":
        return False
    base = model.log.at(f"snapshot/snapshot-{document['id'] - 1}")
    if (put.operation, put.target, look.operation, look.target) != ("put", address, "read", base):
        return False
    return moment in ((look.number, look.number), (put.number, look.number))


def _content(model: PaimonModel, name: str) -> bytes:
    """As it was written: an accident that spoilt it just now is not the product's, and will be mended."""
    address = model.log.at(f"manifest/{name}")
    spoilt = model.trouble.taken.get(address)
    return spoilt.data if spoilt else model.world.get(address)


def _records(model: PaimonModel, name: str) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(_content(model, name))))


def _manifests(model: PaimonModel, name: str) -> list[tuple[str, list[Any]]]:
    return [(one["_FILE_NAME"], _records(model, one["_FILE_NAME"])) for one in _records(model, name)]


def _live(manifests: list[tuple[str, list[Any]]]) -> set[tuple[bytes, int, str]]:
    """Partition, level and name of every file that is live by these."""
    found: set[tuple[bytes, int, str]] = set()
    for _, entries in manifests:
        for one in entries:
            key = (one["_PARTITION"], one["_FILE"]["_LEVEL"], one["_FILE"]["_FILE_NAME"])
            found.discard(key) if one["_KIND"] else found.add(key)
    return found


def _identity(one: DataFile) -> tuple[bytes, int, str]:
    return (paimon_bytes.row(one.partition), one.level, one.name)


def _check_due(model: PaimonModel, partition: str | None, files: list[DataFile]) -> None:
    """Expired everywhere on earth; or here, and by what storage and the writers say."""
    days, now = model.rules.partition_days, model.world.now + _SLACK
    if days is None or partition is None:
        raise Lost(f"the partition {partition} was dropped, and partitions do not expire")
    due = datetime.strptime(partition, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=days)
    newest = datetime.fromtimestamp(max(one.created_ms for one in files) / 1000, UTC) + timedelta(days=days)
    due = newest if model.rules.by_update else due
    if due >= now - _WEST and (due >= now or newest >= now):
        raise Lost(f"the partition {partition} was dropped before its time")


def _check_carried(model: PaimonModel, address: str, document: dict[str, Any], before: Root, index: list[str]) -> None:
    named = _records(model, document["indexManifest"]) if document.get("indexManifest") else []
    if sorted(one["_FILE_NAME"] for one in named) != sorted(index):
        raise Lost(f"{address} does not carry on the index of the snapshot before it")
    about = before.state.statistics
    of_schema = json.loads(model.world.get(about))["schemaId"] if about else None
    if of_schema == document["schemaId"] and document.get("statistics") != before.document.get("statistics"):
        raise Lost(f"{address} does not carry on the statistics of the snapshot before it")


def _listed(model: PaimonModel, name: str, entries: list[Any]) -> Manifest:
    address = model.log.at(f"manifest/{name}")
    deleted = sum(one["_KIND"] for one in entries)
    partitions = [_text(one["_PARTITION"]) for one in entries]
    size = len(_content(model, name))
    return Manifest(
        address=address, listed=paimon_bytes.listed(name, size, len(entries) - deleted, deleted, partitions)
    )


def _text(row: bytes) -> str | None:
    if row[5]:
        return None
    if row[19] & 0x80:
        return row[12 : 12 + (row[19] & 0x7F)].decode()
    return row[20 : 20 + int.from_bytes(row[12:16], "little")].decode()


def _stand(
    model: PaimonModel, address: str, stored: Stored, document: dict[str, Any], state: State, dropped: set[DataFile]
) -> None:
    log = model.log
    lists = [log.at(f"manifest/{document[name]}") for name in ("baseManifestList", "deltaManifestList")]
    whole = {*lists, *(one.address for one in (*state.manifests, *state.index))}
    whole |= {name for name in (state.index_manifest, state.statistics) if name}
    whole |= {name for one in state.live.values() for name in one.addresses()}
    delta = {lists[1], *(log.at(f"manifest/{name}") for name, _ in _manifests(model, document["deltaManifestList"]))}
    log.written[address] = stored
    log.roots[address] = Root(
        address=address,
        kind="snapshot",
        number=document["id"],
        made_ms=document["timeMillis"],
        stream=document["commitUser"] if document["commitIdentifier"] != BATCH else None,
        document=document,
        stored=stored,
        state=state,
        whole=frozenset(whole),
        changelog=frozenset(),
        delta=frozenset(delta | {name for one in dropped for name in one.addresses()}),
        logged=frozenset(),
    )
    log.states[""] = state
