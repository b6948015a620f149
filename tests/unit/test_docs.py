"""The documents say what is true: links lead somewhere, and every test they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")
TEST = re.compile(r"`((?:unit|contract|flow|laws|interop|e2e)/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    dead = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert dead == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_tests_exist(document):
    unknown = []
    for file, name in set(TEST.findall(document.read_text())):
        source = ROOT / "tests" / file
        if not source.exists() or (name and not re.search(rf"def {name}\b", source.read_text())):
            unknown.append(f"{file}::{name}")
    assert unknown == []


def test_every_dependency_has_its_reason():
    declared = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M).group(1)
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    names = re.findall(r'^\s*"([a-z0-9-]+)', declared, re.M)
    assert names
    assert [name for name in names if name not in reasons] == []
