"""What executors run cannot delete: it has no way to open a deleter or a mover.

Executors run code of `lakesweep.engines` and the decoders of `lakesweep.formats`. Both open stores through
`lakesweep.storage.registry`, which also opens deleters and movers for the sweep. So what they take from it is checked
name by name. That they import no store's own deleter is a contract of the linter, in pyproject.toml.
"""

import ast
import tomllib
from pathlib import Path

import pytest

import lakesweep
from lakesweep.storage.kinds import KINDS

HOME = Path(lakesweep.__file__).parent
MODULES = sorted(path for part in ("engines", "formats") for path in (HOME / part).rglob("*.py"))
REGISTRY = "lakesweep.storage.registry"
OPENERS = {"open_storage", "open_writer"}
"""All that they may take from the registry."""
WORDS = {"deleter", "mover", "open_deleter", "open_mover"}
"""The openers, and the functions of a store's backend: neither as a name nor as a text."""


def taken(text):
    """Everything that a module imports from the package, as (module, name), and every name and attribute it uses."""
    imports, names = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            imports |= {(node.module or "", one.name) for one in node.names}
        elif isinstance(node, ast.Import):
            imports |= {(one.name, "") for one in node.names}
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return imports, names


def ways_to_delete(text):
    imports, names = taken(text)
    found = (names | {name for _, name in imports}) & WORDS
    for module, name in imports:
        whole = f"{module}.{name}" if name else module
        if whole == REGISTRY or (module == REGISTRY and name not in OPENERS):
            found.add(whole)
    return found


def forbidden(contract):
    """What a contract of the linter forbids to import."""
    contracts = tomllib.loads((HOME.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return set(next(one["forbidden_modules"] for one in contracts if one["name"] == contract))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_contracts_of_the_linter_name_every_store(kind):
    package = kind.backend.removesuffix(".backend")
    assert package in forbidden("Engines do not know any store's own code")
    deleting = {kind.backend, f"{package}.deleter", f"{package}.mover"}
    present = {one for one in deleting if (HOME.parent / f"{one.replace('.', '/')}.py").exists()}
    assert present
    assert present <= forbidden("What executors run has no way to a store's deleter")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_nothing_that_executors_run_opens_a_deleter(module):
    assert ways_to_delete(module.read_text()) == set()


@pytest.mark.parametrize(
    "text",
    [
        "from lakesweep.storage.registry import open_deleter",
        "from lakesweep.storage.registry import open_mover as x",
        "from lakesweep.storage import registry",
        "import lakesweep.storage.registry as stores",
        "def f(backend, spec): return backend.deleter(spec, None)",
        "getattr(x, 'open_deleter')",
    ],
)
def test_each_way_to_a_deleter_is_noticed(text):
    assert ways_to_delete(text)
