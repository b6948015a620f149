"""A table that cannot be loaded says where it is: whoever has to mend it looks there."""

import asyncio

import pytest

from lakesweep.cli.demo import lake as demo_lake
from lakesweep.daemon.app import App
from lakesweep.settings.schema import Settings

DAMAGED = {
    "acme/shop/orders": "*.metadata.json",
    "initech/web/visits": "snapshot-*",
    "initech/raw/clicks": "_delta_log/*.json",
}
"""By table: what is read first of it, one of each format."""


def place_of(lake, label):
    (place,) = (path for path in lake.root.rglob(label.rpartition("/")[2]) if path.is_dir())
    return place


def damage(lake, label):
    for file in place_of(lake, label).rglob(DAMAGED[label]):
        file.write_bytes(b"\x00 not what was written")


@pytest.mark.parametrize("by", ["name", "location"])
async def test_a_table_that_cannot_be_loaded_has_its_location(tmp_path, by):
    lake = await asyncio.to_thread(demo_lake.build, tmp_path / "lake")
    own = {"service": {"data_dir": tmp_path / "state"}, "engine": {"kind": "inprocess"}}
    async with App.open(Settings.model_validate({**lake.settings, **own} if by == "name" else own)) as app:
        for label in DAMAGED:
            (work,) = await app.resolve(label if by == "name" else str(place_of(lake, label)))
            sound = (await app.plan(work)).location
            assert sound is not None
            damage(lake, label)
            (work,) = await app.resolve(label if by == "name" else str(place_of(lake, label)))
            run = await app.plan(work)
            assert (run.plan, run.location.rstrip("/")) == (None, sound.rstrip("/")), run.reason
            assert (await app.state.get_run(run.id))["location"] == run.location
        if by == "name":
            told = {status.ref.label: status for status in await app.tables()}
            assert all(told[label].problem and told[label].location for label in DAMAGED)
