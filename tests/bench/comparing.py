"""What every comparison with a peer shares: where tables are, how ours runs, and that both found the same files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.bench import measuring, results
from tests.bench.measuring import Cost
from tests.bench.places import LocalPlace, Place, S3Place
from tests.bench.results import Result
from tests.servers import seaweedfs

BUCKET = "lake"
WARM_UP = 1000
"""Files of the table that every peer works through before it is measured."""


AWAY_SECONDS = 0.05
"""How much later a far store answers. AWS names 100 to 200 ms for small objects; a fast answer takes 20."""


class Different(RuntimeError):
    """The two sides disagree, or both are wrong."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A table to compare on."""

    files: int
    s3: bool = False
    far: bool = False
    """Whether the store answers as late as one in a data center (`AWAY_SECONDS`)."""
    spark: bool = True
    """Whether Delta's Spark takes part: it needs minutes where the others need seconds."""

    @property
    def label(self) -> str:
        count = f"{self.files // 1_000_000}M" if self.files >= 1_000_000 else f"{self.files // 1000}k"
        store = f"S3 {AWAY_SECONDS * 1000:.0f} ms away" if self.far else "S3" if self.s3 else "local"
        return f"{count}, {store}"


@dataclass(kw_only=True)
class Bench:
    """A scratch directory, an S3 server if one is needed, and what was measured so far."""

    work: Path
    server: seaweedfs.SeaweedFS | None
    far_endpoint: str = ""
    """The same server, `AWAY_SECONDS` away."""
    docs: Path | None = None
    found: list[Result] = field(default_factory=list)
    _places: int = 0

    @property
    def state(self) -> Path:
        """What lakesweep remembers between two runs."""
        return self.work / "state"

    def place(self, size: Size, name: str) -> Place:
        """Somewhere new for a table called `db/t`."""
        self._places += 1
        path = f"{name}-{size.files}-{self._places}/db/t"
        if size.s3:
            assert self.server is not None
            return S3Place(server=self.server, bucket=BUCKET, prefix=path)
        return LocalPlace(root=self.work / "lake" / path)

    def remove(self, place: Place) -> None:
        """A local table goes when it is done with; buckets go with the server."""
        if isinstance(place, LocalPlace):
            shutil.rmtree(place.root.parents[1])

    def requests(self, size: Size) -> Callable[[], int] | None:
        """What counts the requests on S3."""
        return self.server.requests if size.s3 and self.server else None

    def endpoint(self, size: Size) -> str:
        """Where both sides reach the store of this table."""
        assert self.server is not None
        return self.far_endpoint if size.far else self.server.endpoint_url

    def config(self, size: Size, settings: dict[str, Any]) -> Path:
        """A settings file, and nothing remembered."""
        shutil.rmtree(self.state, ignore_errors=True)
        config = self.work / "lakesweep.toml"
        common = {
            "service": {"data_dir": str(self.state)},
            "orphan_cleanup": {"ceilings": {"files": size.files}},  # the default is a million
            **self._storage_settings(size),
        }
        config.write_text(_toml(common | settings))
        return config

    def ours(self, size: Size, settings: dict[str, Any], *command: str) -> Cost:
        """Run lakesweep with nothing remembered: an empty cache, an empty state."""
        return measuring.lakesweep(
            *command,
            "--config",
            str(self.config(size, settings)),
            output=self.work / "ours.txt",
            environment=seaweedfs.ENVIRONMENT,
            requests=self.requests(size),
        )

    def planned(self, size: Size, place: Place, settings: dict[str, Any], target: str) -> tuple[Cost, set[str]]:
        """Plan; which files nothing refers to, by their names below the table."""
        cost = self.ours(size, settings, "plan", target)
        return cost, self.orphans_found(place)

    def orphans_found(self, place: Place) -> set[str]:
        """What the newest plan found, by the names below its table."""
        plans = (self.state / "artifacts" / "plans").glob("*.parquet")
        rows_path = max(plans, key=lambda path: path.stat().st_mtime)
        rows = pq.read_table(rows_path, columns=["path", "reason"])
        paths = rows.filter(pc.equal(rows.column("reason"), "unreferenced")).column("path")
        return {below(place, path) for path in paths.to_pylist()}

    @contextmanager
    def measured(self, size: Size, pid: int, costs: list[Cost]) -> Iterator[None]:
        """Add what the block costs a peer to `costs`."""
        with measuring.measured(lambda: pid, self.requests(size)) as meter:
            yield
        costs.append(meter.cost)

    def note(self, work: str, size: Size, ours: Cost, peer: str, theirs: Cost) -> None:
        """One comparison."""
        self.found.append(Result(work=work, table=size.label, files=size.files, ours=ours, peer=peer, theirs=theirs))
        print(results.line(self.found[-1]), flush=True)
        if self.docs:
            results.write(self.found, self.docs)

    def _storage_settings(self, size: Size) -> dict[str, Any]:
        if not size.s3 or self.server is None:
            return {"storage": {"local": {"age_by": "modification"}}}
        return {"storage": {"s3": {"endpoint_url": self.endpoint(size), "path_style": True}}}


def same(who: str, found: set[str], planted: set[str]) -> None:
    """Raise Different unless it is so."""
    if found != planted:
        odd = sorted(found ^ planted)[:3]
        raise Different(f"{who} found {len(found)} files, {len(planted)} were planted; the first that differ: {odd}")


def below(place: Place, path: str) -> str:
    """The name of a file below the table, however the address is spelled."""
    home = address(place).removeprefix("s3://")
    return path[path.index(home) + len(home) + 1 :]


def address(place: Place) -> str:
    """A local table by its plain path, as every tool takes it."""
    return place.address.removeprefix("file://")


def warehouse(place: Place) -> str:
    """What the table's catalog, and its tenant, call their own."""
    return place.address.removesuffix("/db/t")


def _toml(settings: dict[str, Any]) -> str:
    """As one inline table per section: JSON's texts, numbers and lists are TOML's too."""

    def value(thing: Any) -> str:
        if isinstance(thing, dict):
            return "{" + ", ".join(f'"{key}" = {value(inner)}' for key, inner in thing.items()) + "}"
        if isinstance(thing, list):
            return "[" + ", ".join(map(value, thing)) + "]"
        return json.dumps(thing)

    return "\n".join(f"{key} = {value(section)}" for key, section in settings.items())
