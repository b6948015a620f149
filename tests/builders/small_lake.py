"""Many small Delta tables, cheap enough to make by the hundred: one commit, a few live files, a few old orphans."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
"""Older than any grace period, by any clock that tests use."""


@dataclass(frozen=True, kw_only=True)
class SmallTable:
    """The objects of one table by their path below it."""

    live: tuple[str, ...]
    orphans: tuple[str, ...]
    log: str

    def objects(self) -> Iterator[tuple[str, bytes]]:
        yield "_delta_log/00000000000000000000.json", self.log.encode()
        for path in (*self.live, *self.orphans):
            yield path, path.encode()


def small_table(name: str, *, live: int = 2, orphans: int = 3, begin: str = "part") -> SmallTable:
    files = tuple(f"{begin}-{number:05}-live.parquet" for number in range(live))
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    born = int(LONG_AGO.timestamp() * 1000)
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": born, "operation": "WRITE"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012}",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": born,
            }
        },
        *(
            {
                "add": {
                    "path": path,
                    "partitionValues": {},
                    "size": len(path),
                    "modificationTime": born,
                    "dataChange": True,
                }
            }
            for path in files
        ),
    ]
    return SmallTable(
        live=files,
        orphans=tuple(f"{begin}-{number:05}-failed.parquet" for number in range(orphans)),
        log="".join(json.dumps(action) + "\n" for action in actions),
    )


def write_local(directory: Path, table: SmallTable) -> None:
    """All files as old as LONG_AGO."""
    for path, data in table.objects():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        os.utime(target, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))


@dataclass(kw_only=True)
class LocalLake:
    """Tenants with Delta tables in directories: `<root>/<tenant>/tables/<table>`."""

    root: Path
    tables: dict[str, SmallTable] = field(default_factory=dict)
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, tenant: str, names: Sequence[str], *, orphans: int = 3, **cleanup: Any) -> None:
        """A tenant with these tables, and what its settings say of cleaning them."""
        place = self.root / "lake" / tenant
        (place / "tables").mkdir(parents=True, exist_ok=True)
        dataset = {"id": "d", "format": "delta", "location": f"{place}/tables"}
        self.tenants[tenant] = {
            "id": tenant,
            "root": str(place),
            "datasets": [dataset],
            "orphan_cleanup": cleanup,
        }
        for name in names:
            table = small_table(name, orphans=orphans)
            write_local(place / "tables" / name, table)
            self.tables[f"{tenant}/d/{name}"] = table

    def directory(self, label: str) -> Path:
        tenant, _, name = label.split("/")
        return self.root / "lake" / tenant / "tables" / name

    def settings(self, **sections: Mapping[str, Any]) -> dict[str, Any]:
        """What a settings file would hold; sections are merged over what every test wants."""
        base: dict[str, dict[str, Any]] = {
            "orphan_cleanup": {"enabled": True, "dry_run": False},
            "service": {"data_dir": str(self.root / "state")},
            "metrics": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "daemon": {},
            "logging": {"format": "json"},
            "storage": {"local": {"age_by": "modification"}},
        }
        merged = {name: {**base.get(name, {}), **sections.get(name, {})} for name in base | sections}
        return {**merged, "tenants": list(self.tenants.values())}

    def orphans_left(self, label: str) -> set[str]:
        directory = self.directory(label)
        return {path for path in self.tables[label].orphans if (directory / path).exists()}

    def check_live(self) -> None:
        """Nothing live is lost."""
        for label, table in self.tables.items():
            for path in (*table.live, "_delta_log/00000000000000000000.json"):
                assert (self.directory(label) / path).exists(), f"{label} lost {path}"


def to_toml(settings: Mapping[str, Any]) -> str:
    """The same settings as a file; JSON's strings, numbers and arrays are TOML's too."""
    lines: list[str] = []
    for section, values in settings.items():
        if section != "tenants":
            lines += [f"[{section}]", *(f"{key} = {_value(value)}" for key, value in values.items()), ""]
    for tenant in settings.get("tenants", ()):
        lines += ["[[tenants]]", *(f"{key} = {_value(value)}" for key, value in tenant.items()), ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def hours(**span: float) -> float:
    """`hours(seconds=3)`: settings count in hours."""
    return timedelta(**span).total_seconds() / 3600
