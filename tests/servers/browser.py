"""Debian's Chromium, headless, driven by Playwright: pages as a person has them.

Playwright's own browsers are not fetched; `.ci/need browser` installs Chromium with the system's package manager.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
"""It is to reach our service and nothing else."""


def chromium() -> str | None:
    """Where the browser is, if it is installed."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """One for a test process; every test opens windows of its own."""
    program = chromium()
    assert program, "no Chromium: run `.ci/need browser`"
    expect.set_options(timeout=60_000)  # a busy machine is slow; what is waited for decides, not the time it takes
    arguments = [*_QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # it refuses to sandbox itself as root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(kw_only=True)
class Window:
    """A page, what it complained about, whom it talked to, and how a person answers its questions."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    agrees: bool = False

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.addresses.append(request.url))
        self.page.on("dialog", self._answer)

    def _answer(self, dialog: Dialog) -> None:
        self.questions.append(dialog.message)
        (dialog.accept if self.agrees else dialog.dismiss)()


@contextmanager
def window(browser: Browser) -> Iterator[Window]:
    """A new one that remembers nothing of others."""
    context = browser.new_context()
    try:
        yield Window(page=context.new_page())
    finally:
        context.close()
