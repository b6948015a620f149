"""A look at a table counts as a look for other commits too, if it listed them itself and read nothing after."""

import json
from pathlib import Path

from tests.builders.iceberg_flow import plant

from lakesweep.model.snapshot import ExpiryPlan


async def look(handle):
    view = await handle.load()
    await view.references(ExpiryPlan(head=view.head))
    return handle.looked_for_other_commits_last()


async def test_only_a_listing_behind_which_nothing_was_read_counts(lake, bench):
    table = lake.create()
    table.append(1)
    handle = await lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)
    assert not await look(handle), "the first look uses what was listed when the table was loaded"
    await (await handle.load()).foreign_owner(())  # the plan was checked: from here on every other file is new
    assert await look(handle)
    head = json.loads(Path(table.refresh().metadata_location.removeprefix("file://")).read_bytes())
    plant(table, "metadata/00009-6f1f8a3e-1111-4000-8000-000000000001.metadata.json", json.dumps(head).encode())
    assert await handle.has_other_commits()
    assert not await look(handle), "the new file was read, and meanwhile another may have come"
