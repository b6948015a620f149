"""Who owns what below a tenant's root: every table's places, overlaps, ghosts, and what nobody claims. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import TypedDict

from lakesweep.aio import working_for
from lakesweep.daemon import targets
from lakesweep.daemon.table_locations import PlacesByTable, is_of_no_dataset
from lakesweep.model import ghost
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.run_document import Count
from lakesweep.settings.cascade import trash_places
from lakesweep.settings.tenants import TenantSettings

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

DIRECTORIES_SHOWN = 50
_DIRECTORIES_KEPT = 100_000


class Place(TypedDict):
    """One prefix and whose it is."""

    location: str
    tables: list[str]
    """More than one share it."""
    files: Count
    bytes: Count


class Unclaimed(TypedDict):
    """Files of no table: of a trash, or of nobody, by the directory right below the root or above a claimed place."""

    location: str
    files: Count
    bytes: Count


class TenantMap(TypedDict):
    """One tenant of `map --json`."""

    tenant: str
    root: str
    places: list[Place]
    overlaps: list[list[str]]
    unread: list[str]
    """Datasets whose tables are not known: what is theirs looks unclaimed."""
    trash: list[Unclaimed]
    """What runs moved away and `restore` can bring back."""
    ghosts: list[ghost.GhostDocument]
    unclaimed: list[Unclaimed]
    unclaimed_files: Count
    unclaimed_bytes: Count


class Owner(NamedTuple):
    """A place, and the tables that have it."""

    prefix: str
    tables: tuple[str, ...]


async def draw(app: App, name: str) -> TenantMap:
    """Of one tenant. Ghosts are left out if a catalog cannot be read."""
    tenant = targets.tenant(app.settings, name)
    with working_for(name):
        drawn = await _without_ghosts(app, tenant)
    try:
        found = await app.ghosts(name)
    except Refused as exc:
        return {**drawn, "unread": [*drawn["unread"], exc.reason]}
    return {**drawn, "ghosts": [ghost.document(one) for one in found]}


async def _without_ghosts(app: App, tenant: TenantSettings) -> TenantMap:
    """Every listed file counts for the innermost place that contains it."""
    owned = owners(await app.neighbours.of(tenant))
    unread = [one.id for one in tenant.datasets if app.neighbours.problem(tenant.id, one.id) is not None]
    root = Location.parse(tenant.root)
    trashes = sorted({prefix(one) for one in trash_places(app.settings, tenant)})
    nearest = Nearest([*(owner.prefix for owner in owned), *trashes])
    files, sizes, loose = Counter[str](), Counter[str](), set[str]()
    base = prefix(root)
    async with aclosing(app.adapters.storage(tenant.id).list(targets.real(root))) as pages:
        async for page in pages:
            for path, size in zip(*(page.column(name).to_pylist() for name in ("path", "size_bytes")), strict=True):
                place = nearest.above(path)
                if place is None:
                    place = base + path.removeprefix(base).rpartition("/")[0].partition("/")[0]
                    loose.add(place)
                files[place] += 1
                sizes[place] += size
    largest = sorted(loose, key=lambda name: (-sizes[name], name))
    return {
        "tenant": tenant.id,
        "root": root.raw,
        "places": [
            {"location": one.prefix, "tables": list(one.tables), "files": files[one.prefix], "bytes": sizes[one.prefix]}
            for one in owned
        ],
        "overlaps": overlaps(owned),
        "unread": unread,
        "trash": [{"location": one, "files": files[one], "bytes": sizes[one]} for one in trashes if files[one]],
        "ghosts": [],
        "unclaimed": [
            {"location": name, "files": files[name], "bytes": sizes[name]} for name in largest[:DIRECTORIES_SHOWN]
        ],
        "unclaimed_files": sum(files[name] for name in loose),
        "unclaimed_bytes": sum(sizes[name] for name in loose),
    }


def prefix(place: Location) -> str:
    """A directory as it really leads, with a slash."""
    return targets.real(place).as_directory().raw


def owners(places: PlacesByTable) -> list[Owner]:
    """Every place once, in order, with all tables that have it."""
    tables: dict[str, set[str]] = {}
    for ref, where in places.items():
        name = f"{ref.tenant}/{ref.dataset}: {ref.name[1:]} (in its catalog)" if is_of_no_dataset(ref) else ref.label
        for place in where:
            tables.setdefault(prefix(place), set()).add(name)
    return [Owner(prefix, tuple(sorted(names))) for prefix, names in sorted(tables.items())]


def overlaps(owned: Sequence[Owner]) -> list[list[str]]:
    """Places of different tables where one contains the other, and places that several tables have."""
    found = [[one.prefix, one.prefix] for one in owned if len(one.tables) > 1]
    above: list[Owner] = []
    for one in owned:
        above = [other for other in above if one.prefix.startswith(other.prefix)]
        found += [[other.prefix, one.prefix] for other in above if set(other.tables) != set(one.tables)]
        above.append(one)
    return found


class Nearest:
    """Finds the innermost place above a file. Files come directory by directory, so the last answers are kept."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = frozenset(prefixes)
        self._known = lru_cache(maxsize=_DIRECTORIES_KEPT)(self._search)

    def above(self, path: str) -> str | None:
        return self._known(path[: path.rfind("/") + 1])

    def _search(self, directory: str) -> str | None:
        while directory:
            if directory in self._prefixes:
                return directory
            directory = directory[: directory.rfind("/", 0, -1) + 1]  # two slashes are a directory too
        return None
