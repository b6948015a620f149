"""What contributors run is what the project promises: `make check`, its hooks, and what editors are told."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target):
    return re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)*)", MAKEFILE, re.M)


def test_make_check_needs_no_java_no_maven_and_no_server():
    check = recipe("check")
    assert check[0].startswith("check: lint ")
    assert ".ci/need" not in check[1] + recipe("lint")[1]
    (quick,) = re.findall(r"^QUICK := (.*)$", MAKEFILE, re.M)
    assert all(f"not {marker}" in quick for marker in ("soak", "slow", "spark", "server"))
    assert {word for word in quick.split() if word.startswith("tests/")} == {"tests/unit", "tests/flow"}


def test_what_counts_as_slow_exists():
    listed = re.search(r"^SLOW = \{\n(.*?)^\}", (ROOT / "tests" / "conftest.py").read_text(), re.S | re.M)[1]
    files = re.findall(r'"(.+?)"', listed)
    assert files
    assert [file for file in files if not (ROOT / "tests" / file).is_file()] == []


def test_the_hooks_are_local_and_run_what_make_runs():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["entry"] for hook in repository["hooks"]} == {"make lint", "make check"}


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("docs/*.md")))
def test_every_page_has_one_title(name):
    text = re.sub(r"^```.*?^```", "", (ROOT / "docs" / name).read_text(), flags=re.S | re.M)
    assert len(re.findall(r"^# ", text, re.M)) == 1


def test_each_noun_is_in_the_glossary_once():
    nouns = re.findall(r"^\| ([a-z][a-z -]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    nouns = [noun for noun in nouns if noun != "word"]
    assert len(nouns) > 60
    assert len(nouns) == len(set(nouns))
    wanted = {"lease", "fencing token", "grace period", "orphan", "hold", "plan", "approval", "audit segment"}
    assert wanted | {"listing shard", "manifest cache", "back-off"} <= set(nouns)


def test_every_package_is_in_the_picture_of_the_layers():
    text = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"^```text\n(.*?)^```", text, re.S | re.M)[1]
    packages = {path.parent.name for path in (ROOT / "service/lakesweep").glob("*/__init__.py")}
    assert {name for name in packages if not re.search(rf"\| {name}\b|-> \| {name}\b", picture)} == set()


def test_the_modules_in_the_pictures_exist():
    pages = [(ROOT / "docs" / name).read_text() for name in ("architecture.md", "glossary.md")]
    named = set(re.findall(r"service/lakesweep/[\w/*]+\.py", "".join(pages)))
    assert len(named) > 50
    assert {name for name in named if not list(ROOT.glob(name))} == set()


def test_nothing_asks_for_a_scheme_by_name_outside_storage():
    """`Location` answers such questions: whoever compares schemes would have to learn of each new storage."""
    asks = re.compile(r"""scheme\s*(==|!=)\s*["']|scheme in [({\[]|startswith\(\(?["'](file|s3|gs|abfss?|hdfs):""")
    service = ROOT / "service" / "lakesweep"
    answers = {service / "model" / "location.py", *(service / "storage").rglob("*.py")}
    files = sorted(set(service.rglob("*.py")) - answers)
    assert len(files) > 100
    assert [str(file.relative_to(ROOT)) for file in files if asks.search(file.read_text())] == []


def test_no_test_module_imports_another():
    """What several need is in tests/builders."""
    imports = re.compile(r"^\s*(from|import) tests\.\S*( import )?\btest_", re.M)
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert [str(file.relative_to(ROOT)) for file in files if imports.search(file.read_text())] == []


def test_names_of_tests_fit_in_72_characters():
    names = re.compile(r"^\s*(?:async )?def (test_\w+)", re.M)
    found = [name for file in (ROOT / "tests").rglob("*.py") for name in names.findall(file.read_text())]
    assert len(found) > 2000
    assert [name for name in found if len(name) > 72] == []
