"""A small service behind the dashboard, on a real socket: ten thousand tables, hostile names, two weeks of runs."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.builders import reports
from tests.builders.admin import NOON, SmallService
from tests.unit.cli import examples

from lakesweep.admin.limits import Limits
from lakesweep.admin.server import serving
from lakesweep.model.access import Role
from lakesweep.model.run import Outcome

HOSTILE = "acme/prod/<img src=x onerror=alert(1)>"
TABLES = 10_000


class LargeService(SmallService):
    """The same, with a made-up lake in its report."""

    @functools.cached_property
    def whole(self):
        made = [
            reports.known(f"acme/d{number % 40}/table-{number:05}", reports.planned(number * 10**7, number * 10**6))
            for number in range(TABLES - 3)
        ]
        made.append(reports.known("acme/prod/orders", examples.refused("ceiling_files", "too many files: <b>look</b>")))
        made.append(reports.known(HOSTILE, examples.refused("overlap", "two tables share <script>x</script>")))
        made.append(reports.known("acme/prod/held", held="held by ops (<i>migration</i>)", held_scope="acme/prod/held"))
        weeks = [
            reports.figures(
                14 - day, 10**12 + day * 10**11, 6 * 10**11 if day % 5 == 4 else 0, table="acme/prod/orders"
            )
            for day in range(15)
        ]
        return reports.report(*made, runs=weeks, price=reports.Price(per_gb_month=0.023, currency="USD"))

    async def report(self, tenants):
        return self.whole


@dataclass(frozen=True, kw_only=True)
class Served:
    """Where it answers, and the tokens that it knows."""

    url: str
    service: LargeService
    operate: str
    read: str
    expired: str


@contextmanager
def serving_dashboard(directory: Path, kind: type[LargeService] = LargeService) -> Iterator[Served]:
    """In a thread: the browser's own loop has this one."""
    ready, stop, found = threading.Event(), threading.Event(), []

    async def main() -> None:
        service = kind(directory)
        await service.seed()
        assert service.whole["tables"]
        under_way = examples.planned(
            id="a" * 32, started_at=NOON + timedelta(minutes=1), outcome=None, finished_at=None
        )
        await service.state.start_run(under_way)
        hostile = examples.failed("<script>alert(2)</script>")
        await service.state.start_run(examples.replace(hostile, id="b" * 32, outcome=Outcome.FAILED, started_at=NOON))
        operate, read = await service.token(), await service.token(role=Role.READ)
        expired = await service.token(days=-1)
        limits = Limits(per_second=100_000, burst=100_000)
        async with serving(service.app(limits=limits), "127.0.0.1:0") as address:
            found.append(Served(url=f"http://{address}", service=service, operate=operate, read=read, expired=expired))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join(30)
