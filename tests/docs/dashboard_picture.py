"""The picture of the dashboard in the documentation: the page that the browser tests look at, over a made-up lake."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import expect
from tests.builders import reports
from tests.builders.dashboards import LargeService, serving_dashboard
from tests.servers.browser import running_browser
from tests.unit.cli import examples

NAMES = ("orders", "events", "clicks", "sessions", "payments", "returns")
CEILING = "the plan would delete 212,450 files, above ceilings.files = 200000: look at the saved plan"
MISSING = "3 live files are missing from storage, first s3://lake/globex/iot/readings/data/00017.parquet"


class MadeUpLake(LargeService):
    """Three tenants, two tables that wait for a person, three weeks of runs."""

    @functools.cached_property
    def whole(self):
        """Its report."""
        made = [
            reports.known(
                f"{tenant}/prod/{name}",
                reports.planned(10**11 // (place + 1), 3 * 10**11 // (place + 2), files=9_000 // (place + 1)),
            )
            for place, (tenant, name) in enumerate(
                (tenant, name) for tenant in ("acme", "globex", "initech") for name in NAMES
            )
        ]
        above = reports.planned(
            9 * 10**11, 10**12, files=212_450, **vars_of(examples.refused("ceiling_files", CEILING))
        )
        damaged = reports.planned(10**9, 0, **vars_of(examples.refused("missing_live_files", MISSING)))
        made += [reports.known("acme/prod/audit_log", above), reports.known("globex/iot/readings", damaged)]
        weeks = [
            reports.figures(
                20 - day,
                10**12 + day * 10**11,
                6 * 10**11 if day % 6 == 5 else 0,
                kept=10**10,
                table="acme/prod/orders",
            )
            for day in range(21)
        ]
        return reports.report(*made, runs=weeks, price=reports.Price(per_gb_month=0.023, currency="USD"))


def vars_of(run) -> dict:
    """How a run ended."""
    return {"outcome": run.outcome, "refusal": run.refusal, "reason": run.reason}


def draw(target: Path) -> None:
    """Write it as PNG."""
    with (
        TemporaryDirectory() as directory,
        serving_dashboard(Path(directory), MadeUpLake) as served,
        running_browser() as browser,
    ):
        page = browser.new_context(viewport={"width": 1280, "height": 1080}).new_page()
        page.goto(served.url)
        page.get_by_label("Token").fill(served.operate)
        page.get_by_role("button", name="Use").click()
        expect(page.locator("#tables tr").first).to_be_visible(timeout=30_000)
        page.screenshot(path=str(target))
