"""What test_shared_files.py and its neighbours are made of."""

from __future__ import annotations

import json

from lakesweep.daemon.app import App
from lakesweep.settings.schema import Settings


def iceberg(lake, *more, state="memory://", **cleanup):
    """`more` are further datasets; without `state` it is a file that outlives the process."""
    dataset = {"id": "prod", "format": "iceberg", "catalog": lake.properties, "namespace": "db"}
    return Settings.model_validate(
        {
            "orphan_cleanup": {"enabled": True, "dry_run": False, **cleanup},
            "service": {"data_dir": str(lake.root.parent / "state")},
            "state": {"url": state},
            "tenants": [{"id": "acme", "root": str(lake.root), "datasets": [dataset, *more]}],
        }
    )


async def run(settings, target):
    async with App.open(settings) as app:
        (work,) = await app.resolve(target)
        return await app.run(work, execute=True)


def borrow(lake, name, through=None, clone="acme/d/clone"):
    """A commit of the clone that adds a file of the source; `through` is another name of the source's directory."""
    path = lake.directory("acme/d/source") / name
    spelled = f"file://{through / name if through else path}"
    add = {"path": spelled, "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True}
    log = lake.directory(clone) / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"add": add}) + "\n")
    return path


def move_clone_to_own_dataset(lake):
    """`acme/d/clone`, which uses a file of `acme/d/source`, becomes `acme/c/clone`. The place of its dataset, and the
    file."""
    borrowed = borrow(lake, "part-00000-failed.parquet")
    clones = lake.root / "lake" / "acme" / "clones"
    clones.mkdir()
    lake.directory("acme/d/clone").rename(clones / "clone")
    lake.tenants["acme"]["datasets"].append({"id": "c", "format": "delta", "location": str(clones)})
    return clones, borrowed
