"""What test_iceberg_lineage.py and its neighbours are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lakesweep.model.location import Location


def file(address: str) -> Path:
    return Path(Location.parse(address).path)


def change(path: Path, edit: Callable[[dict], object]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
