"""The documents say what is true: links lead somewhere, and what they name in code style exists."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.commands import LAKESWEEP

from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.error_messages import known_keys
from lakesweep.settings.load import NOT_SETTINGS, PREFIX, load
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TableSettings, TenantSettings
from lakesweep.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
TEST = re.compile(r"`((?:unit|contract|flow|laws|interop|e2e)/[\w/]+\.py)(?:::(\w+))?`")
FENCED = re.compile(r"^ *```.*?^ *```", re.S | re.M)
CODE = re.compile(r"`([^`\n]+)`")
COMMAND_LINE = re.compile(r"(?:^|[\s(;|&])lakesweep ([a-z][^\n`|;#)]*)")
EXPOSED = frozenset(re.findall(r"^# TYPE (\w+)", Metrics().exposition().decode(), re.M))
PLACES = ("", "service/lakesweep/")
TOP_FOLDERS = ("deploy/", "config/", "docs/", "tests/", "service/", "cleanup/", "formats/", "engines/", "settings/",
               "model/", "daemon/", "cli/", "state/", "storage/")  # fmt: skip

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def prose(document: Path) -> str:
    return FENCED.sub("", document.read_text())


def code(document: Path) -> list[str]:
    """What a document shows in code style inside its sentences."""
    return CODE.findall(prose(document))


def anchors(document: Path) -> set[str]:
    """The names that a forge gives to a page's headings."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", prose(document), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found[slug] = found.get(slug, -1) + 1
        if count:
            found[f"{slug}-{count}"] = 0
    return set(found)


@every_document
def test_links_lead_somewhere(document):
    dead = []
    for file, anchor in LINK.findall(prose(document)):
        target = document.parent / file if file else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{file}#{anchor}")
    assert dead == []


@every_document
def test_pictures_are_there_and_say_what_they_show(document):
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", document.read_text())
    assert [file for words, file in pictures if len(words) < 10 or not (document.parent / file).is_file()] == []


@every_document
def test_named_tests_exist(document):
    unknown = []
    for file, name in set(TEST.findall(document.read_text())):
        source = ROOT / "tests" / file
        if not source.exists() or (name and not re.search(rf"def {name}\b", source.read_text())):
            unknown.append(f"{file}::{name}")
    assert unknown == []


@every_document
def test_named_files_exist(document):
    named = {text for text in code(document) if text.startswith(TOP_FOLDERS) and re.fullmatch(r"[\w./-]+", text)}
    assert {text for text in named if not any((ROOT / place / text).exists() for place in PLACES)} == set()


def setting_names() -> set[str]:
    """Every key's own name, those of tenants, datasets and tables too."""
    models = (TenantSettings, DatasetSettings, TableSettings, CleanupOverride)
    return {str(key[-1]) for key in known_keys()} | {name for model in models for name in model.model_fields}


def unknown_settings(document: Path) -> Iterator[str]:
    dotted = {".".join(map(str, key)) for key in known_keys()}
    for text in code(document):
        spelled = re.fullmatch(r"([a-z][a-z0-9_.]*[a-z0-9])( = .+)?", text)
        if spelled is None:
            continue
        name, value = spelled.groups()
        first = name.partition(".")[0]
        if ("." in name and first in Settings.model_fields and name not in dotted and not (ROOT / name).exists()) or (
            "." not in name and value and name not in setting_names()
        ):
            yield text


@every_document
def test_named_settings_exist(document):
    assert list(unknown_settings(document)) == []


@every_document
def test_examples_of_settings_are_valid(document, tmp_path):
    file = tmp_path / "lakesweep.toml"
    for example in re.findall(r"^```toml\n(.*?)^```", document.read_text(), re.S | re.M):
        assert tomllib.loads(example)
        if "# …" not in example:  # which says that something is left out
            file.write_text(example)
            assert load(file).model_fields_set, example


@every_document
def test_named_variables_exist(document):
    known = {*NOT_SETTINGS, *(PREFIX + "__".join(map(str, key)).upper() for key in known_keys())}
    named = set(re.findall(rf"{PREFIX}[A-Z][A-Z_0-9]*", document.read_text()))
    assert named - known == set()


@every_document
def test_named_metrics_exist(document):
    named = {name for text in code(document) for name in re.findall(r"\blakesweep_[a-z_]+[a-z]\b(?!\.py)", text)}
    assert named - EXPOSED == set()


def unknown_words(line: str) -> Iterator[str]:
    """The first word of a command line that `lakesweep` would not take, if there is one."""
    words = re.findall(r"'[^']*'|\"[^\"]*\"|\S+", line)
    command = LAKESWEEP
    while words and (below := getattr(command, "commands", {}).get(words[0])):
        command, words = below, words[1:]
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        yield line
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    yield from (f"{line}: {word}" for word in words if word.startswith("--") and word not in options)


@every_document
def test_named_commands_exist_with_their_options(document):
    lines = COMMAND_LINE.findall("\n".join(code(document)))
    for block in re.findall(r"^```(?:shell|console)\n(.*?)^```", document.read_text(), re.S | re.M):
        lines += COMMAND_LINE.findall(block)
    assert [fault for line in lines for fault in unknown_words(line.strip())] == []


@every_document
def test_named_make_targets_exist(document):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {name for text in code(document) for name in re.findall(r"^make ([a-z]+)$", text)}
    named |= set(re.findall(r"^make ([a-z]+)", document.read_text(), re.M))
    assert named - targets == set()


def test_the_checks_find_what_is_wrong(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`daemon.max_tabels`, `dry_runn = true`, `gc.enabled = false`, `dry_run = true`\n# A `b` (c)\n")
    assert list(unknown_settings(page)) == ["daemon.max_tabels", "dry_runn = true"]
    assert anchors(page) == {"a-b-c"}
    assert list(unknown_words("plan acme/*/* --files 3")) == []
    assert list(unknown_words("audit show RUN --jsn")) == ["audit show RUN --jsn: --jsn"]
    assert list(unknown_words("sweep now")) == ["sweep now"]


def test_every_page_can_be_reached_from_the_readme():
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        ahead += [page.parent / file for file, _ in LINK.findall(prose(page)) if file]
    assert {path for path in DOCUMENTS if "docs" in path.parts and path.resolve() not in seen} == set()


def test_every_dependency_has_its_reason():
    declared = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M).group(1)
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    names = re.findall(r'^\s*"([a-z0-9-]+)', declared, re.M)
    assert names
    assert [name for name in names if name not in reasons] == []
