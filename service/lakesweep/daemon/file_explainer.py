"""Explain one file: find the table whose file it may be, and say what a plan would do with it and why. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakesweep.cleanup.explain import ConfirmationWait, Explainer, Explanation, RestoredFiles
from lakesweep.daemon import cycle_setup, targets
from lakesweep.daemon.targets import Work
from lakesweep.model.errors import SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

if TYPE_CHECKING:
    from lakesweep.daemon.app import App


async def explain(
    app: App, path: str, *, target: str | None, format: FormatName | None, root: str | None
) -> Explanation:
    location = targets.file_location(path)
    if location is None:
        raise SettingsError(f"{path!r} is not the full address of a file (expected s3://…, file://… or /path)")
    work, now = await _owner_of(app, location, target, format=format, root=root), app.clock.now()
    explainer = Explainer(
        table=work.opened(),
        storage=app.adapters.storage(work.tenant, work.read_root),
        engine=app.adapters.inprocess(work.tenant, work.read_root),
        policy=cycle_setup.policy(app, work, execute=False),
        clock=app.clock,
    )
    wait = ConfirmationWait(policy=explainer.policy, state=app.state, artifacts=app.artifacts)
    explained = await wait.add(await explainer.explain(location), now)
    return await RestoredFiles(state=app.state, records=app.trails.inspector().records).add(explained)


async def _owner_of(
    app: App, location: Location, target: str | None, *, format: FormatName | None, root: str | None
) -> Work:
    if target is None and not app.discovery.datasets():
        raise UnknownTable("no dataset is configured: give the table as --target, or a file with --config")
    works = await app.discovery.resolve(target, format=format, root=root)
    for work in works:
        near = await cycle_setup.TableSurroundings(app=app, work=work).neighbours()
        places = near.places.get(work.ref, ())
        if any(place.contains(location) for place in places) or (target and len(works) == 1):
            return work
    raise UnknownTable(f"no {'matching' if target else 'configured'} table keeps files at {location}: give --target")
