"""The dashboard in a real browser, over a service that really runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.servers.browser import window
from tests.servers.daemon import make_place, plant

from lakesweep.cli.demo.lake import leave_a_ghost

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
        assert "stopped" in run["reason"] or "has been held" in run["reason"]
        assert left() > 0
        assert then - left() <= 1  # the request that was on its way
        holds = api.ask("POST", "/api/v1/resume", {"scope": "acme"}).document["paused"]
        assert [hold["scope"] for hold in holds] == ["*"]

        assert [one for one in seen.complaints if "401" not in one] == []
        assert {address for address in seen.addresses if not address.startswith(f"{place.admin_url}/")} == set()
        assert token not in " ".join(seen.addresses)


def test_a_person_approves_runs_and_takes_back_a_plan_in_the_browser(tmp_path: Path, browser) -> None:
    settings = 'orphan_cleanup.ceilings = { files = 3 }\norphan_cleanup.deletion = "trash"'
    place = make_place(tmp_path, umbrella=settings)
    (data,) = (tmp_path / "lake" / "umbrella").rglob("virus/data")
    leave_a_ghost(tmp_path / "lake" / "umbrella")
    assert place.command("ghosts", "umbrella", "--plan").returncode == 0
    token = place.token("*")
    with place.service() as anybody, window(browser) as seen:
        api = anybody.with_token(token)
        api.knows(VIRUS)
        refused = api.run(VIRUS, execute=True)
        assert refused["refused"]["code"] == "ceiling_files"
        page = seen.page
        conflicts: list[str] = []
        page.on("response", lambda one: conflicts.append(one.request.method + one.url) if one.status == 409 else None)
        page.goto(place.admin_url)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Use").click()
        card = page.locator("#attention li", has_text=VIRUS)
        expect(card).to_contain_text("above ceilings.files = 3")
        card.get_by_role("button", name="Review and approve").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("deletes 7 files")
        expect(dialog).to_contain_text("orphan-0.parquet")
        agree = dialog.get_by_role("button", name="Approve")
        dialog.get_by_label("Type the table's name").fill("umbrella/prod/vir")
        expect(agree).to_be_disabled()
        dialog.get_by_label("Type the table's name").fill(VIRUS)
        agree.click()
        expect(page.locator("#notice")).to_contain_text("Approved by token")
        expect(page.locator("#notice")).to_contain_text("Nothing is deleted by itself")  # it is a dry run
        page.get_by_role("link", name="To the table").click()
        page.get_by_role("button", name="Run", exact=True).click()
        go = dialog.get_by_role("button", name="Run")

        def begun() -> bool:
            """The approval has set off a cycle of its own; while that lasts the table is busy, and the page says so."""
            if "has begun" in (page.locator("#notice").text_content() or ""):
                return True
            if go.is_visible() and go.is_enabled():
                go.click()
            page.wait_for_timeout(200)
            return False

        until(begun, "the run is never begun")
        run = page.locator("#table-page tr", has=page.locator(".badge.done")).first
        expect(run).to_be_visible(timeout=60_000)
        assert list(data.glob("orphan-*")) == []
        run.get_by_role("link").click()
        expect(page.locator("#run-batches")).to_contain_text("7 files deleted")
        page.get_by_role("button", name="Explain").first.click()
        expect(dialog).to_contain_text("not stored")
        dialog.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Restore its files").click()
        expect(dialog).to_contain_text("7 files")
        assert list(data.glob("orphan-*")) == []  # a question changes nothing
        dialog.get_by_role("button", name="Restore").click()
        expect(page.locator("#notice")).to_contain_text(f"7 files of {VIRUS} restored; the table is paused.")
        assert len(list(data.glob("orphan-*"))) == 7
        expect(page.locator("#run-head")).to_contain_text("7 files by run")
        expect(page.get_by_role("button", name="Restore its files")).to_have_count(0)
        taken_back = page.url.rpartition("/")[2]
        again = api.ask("POST", f"/api/v1/runs/{taken_back}/restore", {}).document
        assert again["already_there"] == 7  # a second restore is not what has brought them back
        page.reload()
        expect(page.locator("#run-head")).to_contain_text("7 files by run")
        expect(page.get_by_role("button", name="Restore its files")).to_have_count(0)
        page.locator("#run-head").get_by_role("link", name=VIRUS).click()
        expect(page.locator("#table-holds")).to_contain_text(f"run {taken_back} was restored")
        expect(page.locator("#table-next")).to_contain_text("it is paused until somebody resumes it")
        expect(page.locator("#table-snapshots")).to_contain_text("branch main")
        who = api.ask("GET", "/api/v1/me").document["name"]
        trail = place.command("audit", "show", taken_back).stdout
        assert who in trail
        a_ghost_is_approved_but_goes_with_a_command_of_its_own(page, dialog)
        assert set(conflicts) <= {f"POST{place.admin_url}/api/v1/runs"}  # the table was busy, see `begun`
        assert [one for one in seen.complaints if "401" not in one and "409" not in one] == []


def a_ghost_is_approved_but_goes_with_a_command_of_its_own(page: Page, dialog: Locator) -> None:
    """No page speaks of a cycle of the service, which never works on ghosts."""
    page.get_by_role("link", name="All tables").click()
    expect(page.locator("#ghosts-section")).to_contain_text("lakesweep run --ghosts --execute deletes it")
    row = page.locator("#runs tr", has_text="~ghosts")
    name = row.get_by_role("link", name="~ghosts").text_content() or ""
    row.get_by_role("link").first.click()
    page.get_by_role("button", name="Review and approve").click()
    expect(dialog).to_contain_text("deletes 13 files")
    expect(dialog).to_contain_text("lakesweep run --ghosts --execute")
    expect(dialog).not_to_contain_text("cycle")
    dialog.get_by_label("Type the ghost's name").fill(name)
    dialog.get_by_role("button", name="Approve").click()
    expect(page.locator("#notice")).to_contain_text("lakesweep run --ghosts --execute")
    expect(page.locator("#notice")).not_to_contain_text("cycle")
    page.locator("#run-head").get_by_role("link", name=name).click()
    expect(page.locator("#table-head")).to_contain_text("lakesweep run --ghosts --execute")
    expect(page.locator("#table-head").get_by_role("button")).to_have_count(0)
