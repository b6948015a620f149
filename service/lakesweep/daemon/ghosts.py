"""Ghosts: directories below a tenant's root that look like tables and that nobody claims. Found here, and made work for
cycles. Reads only.

Never inside or around a place that a known table has, never where any known table uses a file, never where a catalog or
a table of the tenant cannot be read: it may claim anything. Directory by directory, so that a lake costs as many
requests as it has directories above its tables; only ghosts are listed file by file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakesweep.aio import gather_bounded
from lakesweep.cleanup.approve import standing
from lakesweep.daemon import targets
from lakesweep.daemon.ghost_claims import Claims, ClaimsReader
from lakesweep.daemon.ghost_table import GhostTable
from lakesweep.daemon.targets import Work
from lakesweep.formats import ghost_metadata, markers
from lakesweep.formats.ghost_layout import GhostLayout
from lakesweep.model.errors import LakesweepError, Refused, Unreadable
from lakesweep.model.ghost import UNKNOWN_FORMAT, Ghost
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Outcome
from lakesweep.model.run_document import Run
from lakesweep.model.table import GHOSTS, FormatName, TableRef, TenantId, is_ghost
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import TableView
from lakesweep.settings.cascade import ghost_grace
from lakesweep.settings.tenants import TenantSettings

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

DEEPEST = 8
"""Levels below the root that are looked at. Tables lie two or three deep."""
MOST_DIRECTORIES = 50_000
_AT_ONCE = 8
_DATA_FILES = (".parquet", ".orc", ".avro")


@dataclass(frozen=True, slots=True)
class _Candidate:
    location: Location
    format: FormatName | None
    evidence: str


@dataclass(frozen=True, kw_only=True)
class GhostSearch:
    """The ghosts of one tenant."""

    app: App
    tenant: TenantSettings

    async def find(self) -> list[Ghost]:
        """All of them, by location. Refused if a catalog or table that could claim one cannot be read."""
        claims_reader = self.claims_reader
        claims = await claims_reader.read()
        former = await self.former_names()
        candidates = await self._walk(claims)
        seen = [one.location for one in candidates]
        candidates += [
            _Candidate(place, run["format"], f"Lakesweep has planned {run['table']} here")
            for place, run in ((Location.parse(run["location"] or "").as_directory(), run) for run in former.values())
            if claims.touches(targets.real(place)) is None
            and not any(one.overlaps(place) for one in seen)
            and self.root.contains(place)
        ]
        ghosts = []
        for candidate in candidates:
            ghost = await self._ghost(candidate, claims, former)
            if ghost is not None and ghost.files:
                ghosts.append(ghost)
        if candidates:
            claims_reader.refuse_unknown()  # the last catalog may have been the first not to answer
        return sorted(ghosts, key=lambda ghost: ghost.location)

    @property
    def claims_reader(self) -> ClaimsReader:
        return ClaimsReader(app=self.app, tenant=self.tenant)

    @property
    def storage(self) -> Storage:
        return self.app.adapters.storage(self.tenant.id)

    @property
    def root(self) -> Location:
        return Location.parse(self.tenant.root)

    async def former_names(self) -> dict[str, Run]:
        """By `_place_key`: the last run that planned this place. A run of a table is preferred to one of its ghost."""
        planned = await self.app.state.last_planned([self.tenant.id])
        found: dict[str, Run] = {}
        for run in sorted(planned.values(), key=lambda run: (not is_ghost(run["table"]), run["started_at"])):
            if run["location"]:
                found[_place_key(Location.parse(run["location"]))] = run
        return found

    async def refuse_lately_known(self, place: Location, since: datetime) -> None:
        """Refused if Lakesweep has worked there since then on a table, of whatever tenant: it was claimed then."""
        here = targets.real(place)
        planned = await self.app.state.last_planned()
        near = [
            label
            for label, run in planned.items()
            if run["location"] and not is_ghost(label) and targets.real(Location.parse(run["location"])).overlaps(here)
        ]
        for label, run in (await self.app.state.last_runs(near)).items():
            if datetime.fromisoformat(run["finished_at"] or run["started_at"]) >= since:
                raise Refused(
                    RefusalCode.GHOST_YOUNG,
                    f"Lakesweep worked on {label} at {planned[label]['location']} at {run['started_at']}, within "
                    f"ghost_grace_hours: {place} belonged to somebody until recently, so it stays",
                )

    async def _walk(self, claims: Claims) -> list[_Candidate]:
        """Level by level. Claimed directories are not searched; those that contain a claimed one are, but are not
        ghosts themselves."""
        found: list[_Candidate] = []
        root, storage = self.root, self.storage
        level, looked = ([] if claims.holds(targets.real(root)) else [root.as_directory()]), 0
        for _ in range(DEEPEST):
            looked += len(level)
            if looked > MOST_DIRECTORIES:
                raise Refused(
                    RefusalCode.TOO_MANY_REQUESTS, f"{self.tenant.root} has more than {MOST_DIRECTORIES} directories"
                )
            deeper: list[Location] = []
            children = await gather_bounded(level, storage.directories, limit=_AT_ONCE)
            for place, names in zip(level, children, strict=True):
                free = claims.touches(targets.real(place)) is None
                candidate = await _recognised(storage, place, names) if free else None
                if candidate is not None:
                    found.append(candidate)
                    continue
                # No table lies in hidden directories and partitions.
                inner = [name for name in names if not name.startswith((".", "_")) and "=" not in name]
                below = [place.join(name).as_directory() for name in inner]
                deeper += [one for one in below if not claims.holds(targets.real(one))]
            level = deeper
        return found

    async def _ghost(self, candidate: _Candidate, claims: Claims, former: dict[str, Run]) -> Ghost | None:
        """None if somebody uses it after all."""
        place = candidate.location
        try:
            await self.claims_reader.refuse_used(place, claims)
        except Refused as exc:
            if exc.code != RefusalCode.GHOST_CLAIMED:
                raise
            return None
        evidence, uuid = [candidate.evidence], None
        if candidate.format is not None:
            read = await self.read(place, candidate.format, claims)
            if read.owned:
                return None
            uuid = read.uuid
            evidence += read.evidence
        run = former.get(_place_key(place))
        noted = run is not None and f"Lakesweep has planned {run['table']} here" in evidence
        if run is not None and not noted and not is_ghost(run["table"]):
            evidence.append(f"Lakesweep last planned it as {run['table']} at {run['started_at']}")
        evidence.append("no catalog, dataset or table that is configured refers to it")
        ghost = Ghost(
            location=place.raw,
            format=candidate.format.value if candidate.format else UNKNOWN_FORMAT,
            tenant=self.tenant.id,
            files=0,
            bytes=0,
            newest_modified_at=None,
            evidence=tuple(evidence),
            name=run["table"] if run and not is_ghost(run["table"]) else None,
            uuid=uuid,
        )
        return await _counted(self.storage, ghost, place)

    async def read(self, place: Location, format: FormatName, claims: Claims) -> Read:
        """What its metadata contains. It is not a ghost if the metadata belongs to a known table, for example at its
        former location, or to a view, which catalogs do not list here."""
        try:
            beside = await ghost_metadata.read(self.storage, place)
            if beside.view is not None or beside.uuids & claims.uuids:
                return Read(owned=True)
        except Unreadable as exc:
            return Read(problem=str(exc), evidence=(f"its metadata cannot be read: {exc}",))
        try:
            table = await self.app.adapters.bare_table(place, format, self.root, self.tenant.id)
            state = await table.load()
        except LakesweepError as exc:
            return Read(problem=str(exc), evidence=(f"its metadata cannot be read: {exc}",))
        uuid = state.table_uuid
        owned = uuid in claims.uuids or any(claims.touches(targets.real(one)) for one in state.roots)
        return Read(
            uuid=uuid, owned=owned, roots=state.roots, state=state, evidence=(f"its uuid is {uuid}",) if uuid else ()
        )

    def work(self, ghost: Ghost) -> Work:
        known = None if ghost.format == UNKNOWN_FORMAT else FormatName(ghost.format)
        return self._work(Location.parse(ghost.location), known, ghost.name)

    async def approved(self) -> list[Work]:
        """Those with a valid approval that no run has carried out since, whatever has become of them."""
        found = []
        former = await self.former_names()
        planned = await self.app.state.last_planned([self.tenant.id])
        for label, run in sorted(planned.items()):
            if not is_ghost(label) or not run["location"] or run["outcome"] is Outcome.DONE:
                continue
            if await standing(self.app.state, label, self.app.clock.now()):
                place = Location.parse(run["location"]).as_directory()
                was = former.get(_place_key(place))
                name = was["table"] if was and not is_ghost(was["table"]) else None
                seen = await _recognised(self.storage, place, await self.storage.directories(place))
                found.append(self._work(place, seen.format if seen else run["format"], name))
        return found

    def _work(self, place: Location, format: FormatName | None, former: str | None) -> Work:
        name = targets.without_slash(place).path.removeprefix(self.root.as_directory().path)
        # A ghost with only data files left is taken for an Iceberg table: its files are in data/.
        ref = TableRef(tenant=TenantId(self.tenant.id), dataset=GHOSTS, name=name, format=format or FormatName.ICEBERG)
        grace = ghost_grace(self.app.settings, self.tenant.id)
        table = GhostTable(ref=ref, location=place.as_directory(), format=format, hunt=self, grace=grace)
        return Work(ref=ref, tenant_root=self.root, table=table, former=former)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a ghost's own metadata contains."""

    uuid: str | None = None
    owned: bool = False
    """Is it a known table's after all?"""
    roots: tuple[Location, ...] = ()
    state: TableView | None = None
    problem: str | None = None
    """Why it cannot be read, if so."""
    evidence: tuple[str, ...] = ()


def _place_key(place: Location) -> str:
    """The same for one directory however it is spelled."""
    return targets.real(place).as_directory().match_key


async def _recognised(storage: Storage, place: Location, names: Sequence[str]) -> _Candidate | None:
    here = set(names)
    for marker in markers.MARKERS:
        if not here.issuperset(marker.directories):
            continue
        if not marker.suffixes:
            return _Candidate(place, marker.format, f"it has {' and '.join(f'{one}/' for one in marker.directories)}")
        directory = marker.directories[0]
        if first := _first(await _some(storage, place.join(directory)), marker.suffixes):
            return _Candidate(place, marker.format, f"it has {directory}/{first}")
    if here.isdisjoint(markers.SIGNS.directories) and "data" in here:
        paths = await _some(storage, place.join("data"))
        first = _first(paths, _DATA_FILES)
        if first and not GhostLayout(root=place.as_directory().raw, format=None).foreign_name(paths):
            return _Candidate(place, None, f"it has data/ with data files, first {first}, and no metadata")
    return None


async def _some(storage: Storage, directory: Location) -> list[str]:
    async with aclosing(storage.list(directory.as_directory())) as pages:
        page = await anext(pages, None)
    paths: list[str] = [] if page is None else page.column("path").to_pylist()
    return paths


def _first(paths: Sequence[str], suffixes: tuple[str, ...]) -> str | None:
    return next((path.rpartition("/")[2] for path in paths if path.endswith(suffixes)), None)


async def _counted(storage: Storage, ghost: Ghost, place: Location) -> Ghost:
    files, size, newest = 0, 0, None
    async with aclosing(storage.list(place)) as pages:
        async for page in pages:
            files += page.num_rows
            size += pc.sum(page.column("size_bytes")).as_py() or 0
            latest: datetime | None = pc.max(page.column("modified_at")).as_py()
            newest = max(filter(None, (newest, latest)), default=None)
    return replace(ghost, files=files, bytes=size, newest_modified_at=newest)
