"""The figures of a campaign in a file: for machines, for the docs, and to go on after an interruption.

A campaign that was interrupted goes on where the file ends, if product and simulator are still what they were: the same
seed tells the same story, so the whole is what one campaign without interruption would have seen.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.sim.campaign import Figures
from tests.sim.tree import tree


class Book:
    """One file. Without a path nothing is kept."""

    def __init__(self, path: Path | None, first: int, stories: int) -> None:
        self._path = path
        self._document: dict[str, Any] = {"tree": tree(), "first": first, "stories": stories, "formats": {}}
        if path is not None and path.is_file():
            found = json.loads(path.read_text())
            same = all(found.get(name) == self._document[name] for name in ("tree", "first", "stories"))
            if same and not found.get("finished"):
                self._document = found

    def known(self, name: str) -> Figures | None:
        """What an interrupted campaign has seen of a format."""
        found = self._document["formats"].get(name)
        if found is None:
            return None
        values = {one.name: found[one.name] for one in fields(Figures)}
        values["seen"], values["outcomes"] = Counter(values["seen"]), Counter(values["outcomes"])
        values["failures"] = [tuple(one) for one in values["failures"]]
        return Figures(**values)

    def write(self, figures: Figures) -> None:
        """The newest figures of a format."""
        told = {**vars(figures), "faults": figures.faults, "kills": figures.kills, "failed": len(figures.failures)}
        self._document["formats"][figures.format] = told
        self._save()

    def finish(self, code: int) -> None:
        """All is told."""
        self._document |= {"finished": True, "exit_code": code}
        self._save()

    def _save(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(self._document, indent=1, sort_keys=True))
            part.replace(self._path)
