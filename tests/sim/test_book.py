"""The figures of a campaign: an interrupted one goes on, and the docs get the same numbers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.docs import sim_figures
from tests.sim import book, service_runs
from tests.sim.book import Book
from tests.sim.campaign import Figures, kept_seeds
from tests.sim.workers import Workers


def figures() -> Figures:
    seen = Counter({"fault before storage.read": 3, "kill after storage.delete": 2})
    told = Figures("delta", stories=50, cycles=90, calls=1000, deleted=7, cpu_seconds=1.0, seconds=2.0, seen=seen)
    told.failures.append((12, "kind", "a sentence"))
    return told


def test_an_interrupted_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    Book(tmp_path / "sim.json", 0, 100).write(figures())
    again = Book(tmp_path / "sim.json", 0, 100)
    assert again.known("delta") == figures()
    assert again.known("iceberg") is None


def test_another_campaign_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sim.json"
    Book(path, 0, 100).write(figures())
    assert Book(path, 0, 200).known("delta") is None
    monkeypatch.setattr(book, "tree", lambda: "other code")
    assert Book(path, 0, 100).known("delta") is None


def test_a_finished_campaign_is_told_again(tmp_path: Path) -> None:
    told = Book(tmp_path / "sim.json", 0, 100)
    told.write(figures())
    told.finish(0)
    assert Book(tmp_path / "sim.json", 0, 100).known("delta") is None


def test_stories_of_services_that_failed_once_are_run_and_not_counted(monkeypatch, tmp_path: Path) -> None:
    told: list[int] = []

    def tell(seed: int) -> tuple[int, str | None, int, Counter[str]]:
        told.append(seed)
        return seed, None, 10, Counter({"kill before storage.delete": 1})

    monkeypatch.setattr(service_runs, "_tell", tell)
    assert service_runs.run_many(range(5), Workers(1), tmp_path / "sim-service.json") == 0
    assert set(told) == {*range(5), *kept_seeds("service")}
    document = json.loads((tmp_path / "sim-service.json").read_text())
    assert (document["stories"], document["calls"], document["kills"]) == (5, 50, 5)


def test_the_docs_have_the_numbers_of_the_file(tmp_path: Path) -> None:
    Book(tmp_path / "sim.json", 0, 50).write(figures())
    (tmp_path / "sim-service.json").write_text(
        json.dumps({"stories": 300, "calls": 9, "faults": 8, "kills": 6, "failed": 0})
    )
    page = tmp_path / "safety.md"
    page.write_text("before\n<!-- sim: begin -->\nold\n<!-- sim: end -->\nafter\n")
    sim_figures.write(page, tmp_path / "sim.json")
    text = page.read_text()
    assert "| Delta | 50 | 90 | 1,000 | 7 | 3 | 2 | 1 | `python -m tests.sim --format delta --stories 50 " in text
    assert "| services | 300 | | 9 | | 8 | 6 | 0 | `python -m tests.sim --service --stories 300 --workers 2` |" in text
    assert "was not at its end" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
