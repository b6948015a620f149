"""The pages of the dashboard in a real browser, over ten thousand tables with hostile names among them."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.builders.admin import RUN_ID
from tests.builders.dashboards import HOSTILE, serving_dashboard
from tests.servers.browser import window

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(600)]

SIZES = [(320, 700), (768, 1024), (1280, 900), (3840, 2160)]
CUT_OFF = """[...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.getAttribute("aria-label"))"""
"""Lists of which a person does not see all columns."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving_dashboard(tmp_path_factory.mktemp("dashboard")) as served:
        yield served


@pytest.fixture
def seen(served, browser):
    with window(browser) as seen:
        yield seen


def log_in(page: Page, url: str, token: str) -> None:
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use").click()
    expect(page.locator("#tables tr").first).to_be_visible()


def test_tables_are_searched_sorted_and_paged_by_the_service(served, seen):
    log_in(seen.page, served.url, served.read)
    page = seen.page
    expect(page.locator("#range")).to_have_text("1–50 of 10,000")
    assert page.locator("#tables tr").count() == 50
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#range")).to_have_text("51–100 of 10,000")
    page.get_by_label("Search").fill("TABLE-0999")
    expect(page.locator("#range")).to_have_text("1–7 of 7")
    page.get_by_label("Search").fill("")
    page.locator("#tenants").get_by_role("button", name="acme").click()
    expect(page.get_by_label("Search")).to_have_value("acme/")
    page.get_by_label("Search").fill("")
    page.get_by_label("Show").select_option("person")
    expect(page.locator("#range")).to_have_text("1–3 of 3")
    page.get_by_label("Show").select_option("")
    page.get_by_label("Sort by").select_option("table")
    expect(page.locator("#tables tr").first).to_contain_text("acme/d0/table-00000")
    assert [one for one in seen.complaints if "401" not in one] == []


def test_a_reader_sees_no_buttons_and_names_are_text(served, seen):
    log_in(seen.page, served.url, served.read)
    page = seen.page
    expect(page.locator("#attention")).to_contain_text(HOSTILE)
    expect(page.locator("#attention")).to_contain_text("<script>x</script>")
    for word in ("Stop everything", "Review and approve", "Resume", "Plan again"):
        expect(page.get_by_role("button", name=word)).to_have_count(0)
    page.locator("#attention").get_by_role("link", name=HOSTILE).click()
    expect(page.locator("#table-page h2")).to_have_text(HOSTILE)
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    page.goto(f"{served.url}/#/run/{'b' * 32}")
    expect(page.locator("#run-head")).to_contain_text("failed")
    assert page.locator("main img, main script, main b, main i").count() == 0
    assert seen.questions == []  # nothing that was smuggled in has run
    assert {one for one in seen.addresses if not one.startswith(served.url)} == set()


def test_a_table_shows_what_comes_next_its_holds_and_why_snapshots_stay(served, seen):
    log_in(seen.page, served.url, served.read)
    page = seen.page
    page.goto(f"{served.url}/#/table/umbrella%2Flab%2Fvirus")
    expect(page.locator("#table-next")).to_contain_text("2026-03-01 12:00 UTC")
    expect(page.locator("#table-snapshots tbody tr")).to_have_count(2)
    expect(page.locator("#table-snapshots")).to_contain_text("2 snapshots, of which the next run expires 1.")
    expect(page.locator("#table-snapshots")).to_contain_text("<b>head</b>")
    expect(page.locator("#table-settings")).to_contain_text("default")
    expect(page.locator("#table-holds")).to_be_hidden()
    expect(page).to_have_title("umbrella/lab/virus · Lakesweep")
    page.get_by_label("File").fill("s3://lake/<b>x</b>")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("dialog")).to_contain_text("<b>x</b>")
    assert page.locator("main b, dialog b").count() == 0


def test_a_token_survives_a_reload_and_no_other_window_has_it(served, seen, browser):
    log_in(seen.page, served.url, served.operate)
    seen.page.reload()
    expect(seen.page.locator("#tables tr").first).to_be_visible()
    assert served.operate not in " ".join(seen.addresses)
    with window(browser) as other:
        other.page.goto(served.url)
        expect(other.page.locator("#problem")).to_have_text("Give a token to see anything.")
        expect(other.page.locator("main")).to_be_hidden()
        other.page.get_by_label("Token").fill(served.expired)
        other.page.get_by_role("button", name="Use").click()
        expect(other.page.locator("#problem")).to_contain_text("not valid")
        expect(other.page.get_by_role("button", name="Stop everything")).to_have_count(0)
    seen.page.evaluate("token => sessionStorage.setItem('token', token)", served.expired)
    expect(seen.page.locator("#problem")).to_contain_text("not valid")
    expect(seen.page.locator("main")).to_be_hidden()  # nor what the valid token has shown
    seen.page.get_by_role("button", name="Sign out").click()
    expect(seen.page.locator("#problem")).to_have_text("Give a token to see anything.")


def test_an_operator_pauses_resumes_plans_and_cancels_with_the_keyboard(served, seen):
    log_in(seen.page, served.url, served.operate)
    page = seen.page
    page.locator("#attention").get_by_role("link", name="acme/prod/orders").press("Enter")
    page.get_by_role("button", name="Pause").press("Enter")
    yes = page.get_by_role("dialog").get_by_role("button", name="Pause")
    expect(yes).to_be_disabled()  # it asks for a reason
    page.keyboard.type("we move it")
    page.get_by_label("How long").select_option("until a time …")
    expect(yes).to_be_disabled()  # which time?
    page.get_by_label("Ends at").fill("2099-12-24T18:00")
    expect(yes).to_be_enabled()
    page.get_by_label("How long").select_option("for 3 days")
    page.get_by_label("Reason").press("Enter")
    expect(page.locator("#notice")).to_have_text(re.compile(r"acme/prod/orders is paused until 20.* UTC\."))
    page.get_by_role("button", name="Plan now").press("Enter")
    expect(page.locator("#notice")).to_contain_text("has begun")
    page.goto(f"{served.url}/#/run/{'a' * 32}")
    page.get_by_role("button", name="Cancel this run").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    expect(page.locator("#notice")).to_contain_text("is ending")
    page.goto(f"{served.url}/#/")
    page.locator("#attention li", has_text="acme/prod/held").get_by_role("button", name="Resume").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    who = {asked[-1] for asked in served.service.asked}
    assert [asked[0] for asked in served.service.asked] == ["run", "cancel"]
    assert all(re.fullmatch("token [0-9a-f]{12}", name) for name in who)


def test_focus_and_scroll_survive_a_refresh_and_an_outage_is_plain(served, seen):
    seen.page.set_viewport_size({"width": 1280, "height": 600})
    log_in(seen.page, served.url, served.read)
    page = seen.page
    link = page.locator("#tables tr").nth(30).get_by_role("link")
    link.focus()
    page.evaluate("window.kept = document.activeElement; window.place = scrollY")
    with page.expect_response("**/api/v1/runs?**", timeout=30_000):
        pass  # it looks again by itself
    page.wait_for_timeout(200)
    assert page.evaluate("document.activeElement === window.kept && scrollY === window.place")
    page.context.set_offline(True)
    expect(page.locator("#problem")).to_contain_text("does not answer", timeout=30_000)
    expect(page.locator("#problem")).to_contain_text("What you see is from")
    expect(page.locator("#health")).to_have_text("unreachable")
    expect(page.locator("body.stale #tables tr").first).to_be_visible()


def test_every_page_is_accessible_and_fits_every_width(served, browser):
    places = {
        "#/": "#tables tr",
        "#/table/acme%2Fprod%2Forders": "#table-page h2",
        f"#/run/{RUN_ID}": "#files tr",
    }
    for scheme in ("light", "dark"):
        page = browser.new_context(color_scheme=scheme).new_page()
        log_in(page, served.url, served.operate)
        for address, shown in places.items():
            page.goto(f"{served.url}/{address}")
            expect(page.locator(shown).first).to_be_visible()
            for width, height in SIZES:
                page.set_viewport_size({"width": width, "height": height})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)
                assert page.evaluate(CUT_OFF) == [], (address, width)
            assert faults(page) == []
        page.get_by_role("button", name="Review and approve").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert faults(page) == []
        page.context.close()


def faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe-core finds: names, roles, contrast, landmarks."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found]
