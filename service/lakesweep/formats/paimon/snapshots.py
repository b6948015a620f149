"""Snapshot, tag and changelog files: JSON that names the lists, manifests and statistics of one state. Pure. Ids are
used again after a rollback and older writers store no uuid, so a snapshot's identity is its content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode

NEWEST_VERSION = 3
"""Snapshot files of a newer version follow rules we do not know."""

KNOWN_FIELDS = frozenset(
    [
        *("version", "id", "schemaId", "commitUser", "commitIdentifier", "commitKind", "timeMillis"),
        *("baseManifestList", "baseManifestListSize", "deltaManifestList", "deltaManifestListSize"),
        *("changelogManifestList", "changelogManifestListSize", "totalRecordCount", "deltaRecordCount"),
        *("changelogRecordCount", "properties", "uuid", "writerVersion", "operation"),
        *("indexManifest", "watermark", "statistics", "nextRowId", "logOffsets"),
    ]
)
"""What we know the meaning of. A snapshot with other fields is not committed on top of."""
_NAMES_A_FILE = re.compile(r'"(manifest|index|stat)-')


MADE_FROM = "lakesweep.base"
"""The property in which a commit of ours names the snapshot that it was made from."""


class Role(StrEnum):
    """What a snapshot file stands for, which decides how much of it must stay readable."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonSnapshot:
    """One snapshot, tag or long-lived changelog. `document` is the whole JSON, to be carried along."""

    id: int
    identity: str
    location: Location
    role: Role
    branch: str | None
    """None for the main table."""
    name: str | None
    """A tag's name."""
    schema_id: int
    base_list: str
    delta_list: str
    changelog_list: str | None
    index_manifest: str | None
    statistics: str | None
    commit_kind: str
    time_millis: int
    sizes: Mapping[str, int]
    """Recorded lengths of the lists, by list name; older writers record none."""
    document: Mapping[str, Any]

    @property
    def committed_at(self) -> datetime:
        return datetime.fromtimestamp(self.time_millis / 1000, UTC)

    @property
    def key(self) -> str:
        """Distinguishes it from every other one, also from a later one that uses the id again."""
        return f"{self.branch or ''}/{self.role}-{self.name or self.id}@{self.identity}"

    @property
    def label(self) -> str:
        what = f"tag {self.name}" if self.role is Role.TAG else f"{self.role} {self.id}"
        return f"{what} of branch {self.branch}" if self.branch else what


def parse_snapshot(
    data: bytes, location: Location, *, role: Role = Role.SNAPSHOT, branch: str | None = None, name: str | None = None
) -> PaimonSnapshot:
    """Decode. Raises ValueError for damage, Refused for a version or a shape we do not know."""
    document = parse_json(data)
    if not isinstance(document, dict):
        raise ValueError("not a snapshot: the JSON is not an object")  # noqa: TRY004 - damage is a ValueError here
    version = document.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= NEWEST_VERSION:
        raise Refused(
            RefusalCode.UNKNOWN_SNAPSHOT_VERSION,
            f"{location} has version {version}; versions up to {NEWEST_VERSION} are supported",
        )
    _check_fields(document, location)
    try:
        base, delta = document["baseManifestList"], document["deltaManifestList"]
        changelog = document.get("changelogManifestList")
        return PaimonSnapshot(
            id=int(document["id"]),
            identity=identity_of(data),
            location=location,
            role=role,
            branch=branch,
            name=name,
            schema_id=int(document["schemaId"]),
            base_list=_plain_name(base),
            delta_list=_plain_name(delta),
            changelog_list=_plain_name(changelog) if changelog else None,
            index_manifest=_plain_name(document["indexManifest"]) if document.get("indexManifest") else None,
            statistics=_plain_name(document["statistics"]) if document.get("statistics") else None,
            commit_kind=str(document["commitKind"]),
            time_millis=int(document["timeMillis"]),
            sizes=_sizes(document),
            document=document,
        )
    except (KeyError, TypeError) as exc:
        raise ValueError(f"not a complete snapshot: {exc!r} is missing or of a wrong kind") from exc


def identity_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def named_as_base(snapshot: PaimonSnapshot) -> str:
    """By its delta's list, which no other commit has: a rollback to a tag writes the same snapshot in other bytes."""
    return f"{snapshot.id} {snapshot.delta_list}"


def first_misplaced(snapshots: Sequence[PaimonSnapshot]) -> PaimonSnapshot | None:
    """A commit of ours that does not follow the snapshot it was made from. Others may carry our property on into
    commits of their own, so it counts only where it names the id right before. Expiry goes from the oldest up: a base
    that is gone while an older snapshot stands was rolled back."""
    for before, one in pairwise(snapshots):
        if (base := _base_of(one)) is not None and base != named_as_base(before):
            return one
    return None


def bases_of_pending_commits(snapshots: Sequence[PaimonSnapshot], latest_hint: int | None) -> dict[int, PaimonSnapshot]:
    """Commits of ours that the LATEST hint has not reached, by the id of the snapshot that each was made from. Ours
    writes the hint only after it has seen that its base still stood: while the hint is behind, the base alone shows
    that the commit hides no rollback and no loss of snapshots. A rollback writes the hint, and so does a commit on top
    of ours. So if there is none, it was deleted, as Java's fast-forward does, or ours is the newest and is pending."""
    if not snapshots:
        return {}
    reached = snapshots[-1].id - 1 if latest_hint is None else latest_hint
    return {one.id - 1: one for one in snapshots if one.id > reached and _base_of(one) is not None}


def without_base(snapshots: Sequence[PaimonSnapshot], latest_hint: int | None) -> PaimonSnapshot | None:
    """The oldest snapshot, if it is a commit of ours whose base is gone before the hint has reached the commit."""
    return bases_of_pending_commits(snapshots, latest_hint).get(snapshots[0].id - 1) if snapshots else None


def _base_of(snapshot: PaimonSnapshot) -> str | None:
    """What a commit of ours was made from; None for a commit of others."""
    properties = snapshot.document.get("properties")
    base = str(properties.get(MADE_FROM, "")) if isinstance(properties, dict) else ""
    return base if base.startswith(f"{snapshot.id - 1} ") else None


def _check_fields(document: Mapping[str, Any], location: Location) -> None:
    """Writers add fields without a new version. What a field that we do not know names would be an orphan to us."""
    naming = [
        name for name in document if name not in KNOWN_FIELDS and _NAMES_A_FILE.search(json.dumps(document[name]))
    ]
    if naming:
        raise Refused(
            RefusalCode.UNKNOWN_SNAPSHOT_VERSION, f"{location} names files in an unknown field ({', '.join(naming)})"
        )


def _plain_name(value: Any) -> str:
    if not isinstance(value, str) or not value or "/" in value:
        raise ValueError(f"{value!r} is not the name of a file")
    return value


def _sizes(document: Mapping[str, Any]) -> dict[str, int]:
    lists = [f"{kind}ManifestList" for kind in ("base", "delta", "changelog")]
    recorded = ((document.get(name), document.get(f"{name}Size")) for name in lists)
    return {name: size for name, size in recorded if name and isinstance(size, int)}
