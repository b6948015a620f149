"""What contributors run is what the project promises: `make check`, its hooks, and what editors are told."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from lakesweep.storage.kinds import KINDS

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target):
    return re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)*)", MAKEFILE, re.M)


def test_make_check_needs_no_java_no_maven_and_no_server():
    check = recipe("check")
    assert check[1].endswith(" lint quick\n")
    assert ".ci/need" not in check[1] + recipe("lint")[1] + recipe("quick")[1]
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


SCHEMES = {"s3a", "s3n", "gs", "abfs", "abfss", "wasbs", "hdfs", "oss", *(kind.scheme for kind in KINDS)}


def schemes_asked_for(tree):
    """The strings with which a module asks for a scheme: compared with one, looked for at the beginning of a text, or
    put before a bucket. `memory://` is also the address of a state store, and `file://` makes a local address."""
    beginnings = re.compile(rf"({'|'.join(SCHEMES)}):")
    buckets = re.compile(rf"({'|'.join(SCHEMES - {'file', 'memory'})}):/")
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        texts = {id(one): one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
        texts = [text for one, text in texts.items() if isinstance(text, str) and one not in docs]
        match node:
            case ast.Compare():
                yield from (text for text in texts if text in SCHEMES)
            case ast.Call(func=ast.Attribute(attr="startswith" | "starts_with")):
                yield from (text for text in texts if beginnings.match(text) and not text.startswith("memory://"))
            case ast.Constant():
                yield from (text for text in texts if buckets.match(text))


@pytest.mark.parametrize(
    "line",
    [
        'text.startswith(("/", "file:", "s3:"))',
        'scratch.partition(":")[0] not in ("s3", "file", scratch)',
        "'/' if scheme.lower() == 'file' else ''",
        'pc.starts_with(paths, "file:")',
        'pa.scalar(f"s3://{bucket}/")',
        "place.scheme in {'gs', 's3'}",
    ],
)
def test_asking_for_a_scheme_by_name_is_found(line):
    assert list(schemes_asked_for(ast.parse(line)))


def test_nothing_asks_for_a_scheme_by_name_outside_storage():
    """`Location`, its twin for columns and `storage.kinds` answer such questions: whoever compares schemes would have
    to learn of each new storage."""
    service = ROOT / "service" / "lakesweep"
    twins = {service / "model" / "location.py", service / "cleanup" / "addresses.py"}
    files = sorted(set(service.rglob("*.py")) - twins - set((service / "storage").rglob("*.py")))
    assert len(files) > 100
    found = {str(file.relative_to(ROOT)): list(schemes_asked_for(ast.parse(file.read_text()))) for file in files}
    assert {file: texts for file, texts in found.items() if texts} == {}


def test_nothing_imports_a_test_module_or_a_conftest():
    """What several need is in tests/builders."""
    imports = re.compile(r"^\s*(from|import) tests\b\S*( import )?\b(test_|conftest\b)", re.M)
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert [str(file.relative_to(ROOT)) for file in files if imports.search(file.read_text())] == []


def test_names_of_tests_fit_in_72_characters():
    names = re.compile(r"^\s*(?:async )?def (test_\w+)", re.M)
    found = [name for file in (ROOT / "tests").rglob("*.py") for name in names.findall(file.read_text())]
    assert len(found) > 2000
    assert [name for name in found if len(name) > 72] == []
