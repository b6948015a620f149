"""Plan without a listing: look only at what expiring snapshots name. Reads, decides nothing about files.

The names make one more listing, which the plan is made from like any other: what is retained is read after it, and the
same join, guards, revalidation, gate and journal follow. A guard that needs what only a listing shows has a substitute
here; without one the table is listed, and the sentence says why. `docs/safety.md` has the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime

from lakesweep.cleanup import table_notes, unlisted
from lakesweep.cleanup.mark import Marking
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.cleanup.table_notes import LastListing
from lakesweep.model.location import Location
from lakesweep.model.run import ListingMode
from lakesweep.ports.engine import Engine, Marked
from lakesweep.ports.table import ExpiringFiles, Shortlist, TableView

_MOST_NAMES = 1_000_000
"""They are held in memory, and so many are as much work as a listing."""
_MOST_DIRECTORIES = 256
"""Each takes a few requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What is looked at in place of a listing."""

    files: ExpiringFiles
    beside: frozenset[str] | None
    """Other tables' metadata near these files; None where the format looks for that itself."""

    def after(self, marking: Marking) -> Callable[[], Awaitable[Marked]]:
        async def mark() -> Marked:
            return self._instead_of_sources(await marking())

        return mark

    def _instead_of_sources(self, marked: Marked) -> Marked:
        """The same without sources that were read for the names: sources do not change."""
        references = marked.references
        if not self.files.sources:
            return marked
        left = tuple(one for one in references.sources if one.retained or one.cache_key not in self.files.sources)
        if len(references.sources) - len(left) != len(self.files.sources):
            return marked  # a commit came in between: read each on its own
        return replace(
            marked,
            references=replace(references, sources=left, expired=(*references.expired, *self.files.names)),
        )


def wanted(context: RunContext, last: LastListing, now: datetime) -> bool:
    match context.listing:
        case ListingMode.ALWAYS:
            return False
        case ListingMode.NEVER:
            return True
        case ListingMode.WHEN_DUE:
            interval, at = context.policy.listing_interval, last.swept_at if context.execute else last.at
            return interval is not None and at is not None and last.passed and at <= now < at + interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a cycle looks at its table."""

    last: LastListing
    names: Names | None = None
    """None means by a listing."""
    listed_because: str | None = None
    """Why there has to be a listing, although none was wanted."""


async def choose(ports: Ports, context: RunContext, view: TableView, *, engine: Engine, marking: Marking) -> Choice:
    """Without a listing if that is wanted and can be done. A format's own shortlist is not touched."""
    last = await table_notes.last_listing(ports.state, view)
    if view.shortlist is not None or not wanted(context, last, marking.now):
        return Choice(last=last)
    why = await _why_listed(ports, context, view, last)
    found = why or await _find(ports, view, engine, marking)
    return Choice(last=last, listed_because=found) if isinstance(found, str) else Choice(last=last, names=found)


async def _find(ports: Ports, view: TableView, engine: Engine, marking: Marking) -> Names | str:
    """The names, or the sentence that says why there has to be a listing."""
    marked, expiry = await marking.look_at(view)
    view = marked.state
    files = await view.expiring_files(expiry, marked.references, engine.read_references)
    pending = await ports.state.pending_expiry(view.ref.label)
    if too_many(files.shortlist, view.roots):
        return f"its expiring snapshots name more than {_MOST_NAMES} files: a listing costs less"
    files = replace(files, shortlist=_inside(files.shortlist, view.roots, ask=pending is not None))
    if files.shortlist.roots:
        return Names(files=files, beside=None)
    return await _with_neighbours(ports, view, files)


async def _why_listed(ports: Ports, context: RunContext, view: TableView, last: LastListing) -> str | None:
    if last.at is None:
        return "it has not been listed in this place before"
    if not last.passed:
        return "the plan from its last listing was refused, and only another listing shows whether that is still so"
    if context.policy.confirm_after:
        return "confirm_after_hours needs listings: nothing else sees a file that nothing references"
    for root in view.roots:
        if links := await ports.storage.irregular(root):
            return f"{links[0]} may give files a second name, and only a listing shows that"
    return None


def too_many(shortlist: Shortlist, roots: tuple[Location, ...]) -> bool:
    """Are these too many names, so that the table is listed after all?"""
    if len(shortlist.objects) + len(shortlist.recorded) <= _MOST_NAMES:
        return False
    inside = _inside(shortlist, roots, ask=False)
    return len(inside.objects) + len(inside.recorded) > _MOST_NAMES


def _inside(shortlist: Shortlist, roots: tuple[Location, ...], *, ask: bool) -> Shortlist:
    """Only what a listing of the roots could show. With `ask`, storage is asked for each object: after an expiry whose
    sweep did not finish, some may be deleted already."""

    def kept(path: str) -> bool:
        place = Location.parse(path)
        return any(root.contains(place) for root in roots)

    objects = [path for path in shortlist.objects if kept(path)]
    recorded = [(path, size) for path, size in shortlist.recorded if kept(path)]
    if ask:
        objects, recorded = sorted({*objects, *(path for path, _ in recorded)}), []
    return replace(shortlist, objects=tuple(objects), recorded=tuple(recorded))


async def _with_neighbours(ports: Ports, view: TableView, files: ExpiringFiles) -> Names | str:
    """Another table's metadata at the head, at the roots, beside the files or above them."""
    paths = [*files.shortlist.objects, *(path for path, _ in files.shortlist.recorded)]
    if sum(len(root.directories_above(paths)) for root in view.roots) > _MOST_DIRECTORIES:
        return (
            f"its expiring snapshots have files in more than {_MOST_DIRECTORIES} directories: looking for other tables "
            "in each of them is more work than a listing"
        )
    # Not the directories at the top of a root: to ask for those would list all files that lie there.
    head = unlisted.head_places(view)
    outside = [path for path in paths if not any(place.contains(Location.parse(path)) for place in head)]
    strange = [place for place in await view.other_tables_beside(outside) if place not in head]
    return Names(files=files, beside=await unlisted.metadata_in(ports.storage, view, {*head, *strange}))
