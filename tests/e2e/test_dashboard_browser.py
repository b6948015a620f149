"""The dashboard in a real browser, over a service that really runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.servers.browser import window
from tests.servers.daemon import make_place, plant

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(600)]

VIRUS = "umbrella/prod/virus"
SLOWLY = """
orphan_cleanup.batch_size = 1
orphan_cleanup.max_concurrent_deletions = 1
orphan_cleanup.ceilings = { share = 1.0 }
"""


def until(what, why):
    deadline = time.monotonic() + 120
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
    return found


def test_the_stop_button_ends_a_sweep_and_shows_what_is_paused(tmp_path: Path, browser) -> None:
    place = make_place(tmp_path, umbrella=SLOWLY)
    (data,) = (tmp_path / "lake" / "umbrella").rglob("virus/data")
    plant(data, 1500)
    token = place.token("*")

    def left() -> int:
        return len(list(data.glob("orphan-*")))

    with place.service() as anybody, window(browser) as seen:
        api = anybody.with_token(token)
        api.knows(VIRUS)
        seen.page.goto(place.admin_url)
        expect(seen.page.locator("#problem")).not_to_be_empty()  # nobody has said who is asking
        seen.page.get_by_label("Token").fill(token)
        seen.page.get_by_role("button", name="Use").click()
        row = seen.page.locator("#tables tr", has_text=VIRUS)
        expect(row).to_be_visible()

        run_id = until(
            lambda: api.ask("POST", "/api/v1/runs", {"target": VIRUS, "execute": True}).document.get("run_id"),
            "no run begins",
        )
        until(lambda: left() < 1490, "nothing is deleted")
        stop = seen.page.get_by_role("button", name="Stop everything")
        stop.click()  # and no, after all
        assert len(seen.questions) == 1
        now = left()
        until(lambda: left() < now, "a question that was denied has stopped it")

        seen.agrees = True
        with seen.page.expect_response("**/api/v1/stop") as answered:
            stop.click()
        then = left()
        assert answered.value.status == 200
        expect(row.locator(".badge.paused")).to_be_visible()
        run = until(lambda: (found := api.get(f"/api/v1/runs/{run_id}"))["outcome"] and found, "the sweep goes on")
        # Two things end it, whichever comes first: this service's own word, or the hold that all replicas ask for.
        assert run["outcome"] in ("failed", "refused")
        assert "stopped" in run["reason"] or "is held" in run["reason"]
        assert left() > 0
        assert then - left() <= 1  # the request that was on its way
        holds = api.ask("POST", "/api/v1/resume", {"scope": "acme"}).document["paused"]
        assert [hold["scope"] for hold in holds] == ["*"]

        assert [one for one in seen.complaints if "401" not in one] == []
        assert {address for address in seen.addresses if not address.startswith(f"{place.admin_url}/")} == set()
        assert token not in " ".join(seen.addresses)
