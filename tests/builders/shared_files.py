"""What test_borrowed_files.py and its neighbours are made of."""

from __future__ import annotations

from lakesweep.daemon.app import App
from lakesweep.settings.schema import Settings


def iceberg(lake, **cleanup):
    dataset = {"id": "prod", "format": "iceberg", "catalog": lake.properties, "namespace": "db"}
    return Settings.model_validate(
        {
            "orphan_cleanup": {"enabled": True, "dry_run": False, **cleanup},
            "service": {"data_dir": str(lake.root.parent / "state")},
            "state": {"url": "memory://"},
            "tenants": [{"id": "acme", "root": str(lake.root), "datasets": [dataset]}],
        }
    )


async def run(settings, target):
    async with App.open(settings) as app:
        (work,) = await app.resolve(target)
        return await app.run(work, execute=True)
