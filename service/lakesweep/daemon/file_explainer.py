"""Explain one file: find the table whose file it may be, and say what a plan would do with it and why. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.cleanup.explain import ConfirmationWait, Explainer, Explanation, RestoredFiles
from lakesweep.daemon import targets
from lakesweep.daemon.cycle_setup import CycleSetup
from lakesweep.daemon.discovery import Discovery
from lakesweep.daemon.targets import Work
from lakesweep.model.errors import SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName


@dataclass(frozen=True, kw_only=True)
class FileExplainer:
    """Explains files by the rules that cycles follow."""

    setup: CycleSetup
    discovery: Discovery

    async def explain(
        self, path: str, *, target: str | None = None, format: FormatName | None = None, root: str | None = None
    ) -> Explanation:
        location = targets.file_location(path)
        if location is None:
            raise SettingsError(f"{path!r} is not the full address of a file (expected s3://…, file://… or /path)")
        work = await self._owner_of(location, target, format=format, root=root)
        setup, now = self.setup, self.setup.clock.now()
        explainer = Explainer(
            table=work.opened(),
            storage=setup.adapters.storage(work.tenant, work.read_root),
            engine=setup.adapters.inprocess(work.tenant, work.read_root),
            policy=setup.policy(work, execute=False),
            clock=setup.clock,
        )
        wait = ConfirmationWait(policy=explainer.policy, state=setup.state, artifacts=setup.artifacts)
        explained = await wait.add(await explainer.explain(location), now)
        return await RestoredFiles(state=setup.state, records=setup.trails.inspector().records).add(explained)

    async def _owner_of(
        self, location: Location, target: str | None, *, format: FormatName | None, root: str | None
    ) -> Work:
        if target is None and not self.discovery.datasets():
            raise UnknownTable("no dataset is configured: give the table as --target, or a file with --config")
        works = await self.discovery.resolve(target, format=format, root=root)
        for work in works:
            places = (await self.setup.surroundings(work).neighbours()).places.get(work.ref, ())
            if any(place.contains(location) for place in places) or (target and len(works) == 1):
                return work
        raise UnknownTable(
            f"no {'matching' if target else 'configured'} table keeps files at {location}: give --target"
        )
