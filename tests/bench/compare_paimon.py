"""Against Java Paimon's orphan clean."""

from __future__ import annotations

from tests.bench.comparing import WARM_UP, Bench, Size, address, below, same
from tests.bench.measuring import Cost
from tests.bench.paimon_lake import PaimonLake
from tests.bench.places import timed
from tests.peers import paimon


def compare(bench: Bench, sizes: list[Size]) -> None:
    """Planning an orphan clean: ours and Java's."""
    warm = PaimonLake(place=bench.place(Size(files=WARM_UP), "warm"), files=WARM_UP)
    warm.build()
    with paimon.running_peer(memory="4g") as peer:
        peer("orphans", path=address(warm.place), dry_run=True)
        for size in sizes:
            lake = PaimonLake(place=bench.place(size, "paimon"), files=size.files)
            with timed(f"Paimon, {size.label} files built"):
                lake.build()
            planned, found = bench.planned(size, lake.place, {}, address(lake.place))
            same("our plan", found, lake.orphans)
            costs: list[Cost] = []
            with bench.measured(size, peer.pid, costs):
                answer = peer("orphans", path=address(lake.place), dry_run=True)
            same("Java's orphan clean", {below(lake.place, path) for path in answer["paths"]}, lake.orphans)
            bench.note("Paimon orphans, dry run", size, planned, "Java orphan clean", costs[0])
            bench.remove(lake.place)
