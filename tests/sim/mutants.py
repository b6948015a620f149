"""The catalogue of mutants: holes that were closed once, opened again in memory, to see that the simulator finds them.

A mutant rewrites source text of product modules. What it rewrites is named by module, function and text; if one of them
is not there exactly once, applying it fails, so nobody overlooks an outdated mutant. `install` rewrites modules while
they are imported, and must come before the product's first import. `apply` gives functions that are imported already
their new code, and takes no time; it cannot change what a module does while it is imported. Each mutant has its own
process.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

PRODUCT = "lakesweep"
ALL = ("iceberg", "delta", "paimon")
SERVICE = ("service",)


class Rotten(Exception):
    """A mutant's target is not what it was: somebody has to look at the mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a module's source."""

    module: str
    where: str
    """A function or method (`check_clock`, `HeldLease.check`); empty for the module itself."""
    old: str | None
    """Text that is there exactly once; None for the whole body of the function."""
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One hole."""

    name: str
    hole: str
    """What the product does wrong with it, in one sentence."""
    stories: tuple[str, ...]
    """Which stories may find it: formats, or `service`."""
    edits: tuple[Edit, ...]
    beyond: str | None = None
    """Why the simulator cannot find it, if it cannot."""
    profile: str | None = None
    """What the stories are about that may find it; see profiles.py. Without one, all."""


def edit(module: str, where: str, old: str, new: str) -> Edit:
    """Replace a text in a function."""
    return Edit(module=module, where=where, old=old, new=new)


def body(module: str, where: str, new: str) -> Edit:
    """Replace all that a function does."""
    return Edit(module=module, where=where, old=None, new=new)


def hole(
    name: str,
    what: str,
    stories: str | Sequence[str],
    *edits: Edit,
    beyond: str | None = None,
    profile: str | None = None,
) -> Mutant:
    """One entry of the catalogue."""
    told = (stories,) if isinstance(stories, str) else tuple(stories)
    return Mutant(name=name, hole=what, stories=told, edits=edits, beyond=beyond, profile=profile)


@cache
def catalogue() -> dict[str, Mutant]:
    """All of them by name."""
    from tests.sim.holes import cycle, delta, iceberg, paimon, service  # noqa: PLC0415 - they import this module

    found: dict[str, Mutant] = {}
    for one in (*cycle.HOLES, *iceberg.HOLES, *delta.HOLES, *paimon.HOLES, *service.HOLES):
        if one.name in found:
            raise Rotten(f"two mutants are called {one.name}")
        found[one.name] = one
    return found


def mutated(mutant: Mutant) -> dict[str, str]:
    """The source of every module that it changes, by module. Raises Rotten if a target is not there."""
    found: dict[str, str] = {}
    for one in mutant.edits:
        source = found.get(one.module) or source_path(one.module).read_text()
        try:
            found[one.module] = _apply(source, one)
        except Rotten as exc:
            raise Rotten(f"{mutant.name}: {one.module}.{one.where}: {exc}") from None
    return found


def install(mutant: Mutant) -> None:
    """Open the hole in this process. The modules that it changes must not have been imported."""
    sources = mutated(mutant)
    early = sorted(set(sources) & set(sys.modules))
    if early:
        raise Rotten(f"{mutant.name}: {early[0]} was imported before the mutant was installed")
    sys.meta_path.insert(0, _Finder(sources))


def apply(mutant: Mutant) -> None:
    """Open the hole in this process, whoever has imported the functions."""
    if needs_import(mutant):
        raise Rotten(f"{mutant.name}: it changes a module itself, so it has to be installed before the import")
    for module, source in mutated(mutant).items():
        found = importlib.import_module(module)
        codes = dict(_codes(compile(source, str(source_path(module)), "exec", dont_inherit=True)))
        for one in mutant.edits:
            if one.module == module:
                _function(found, one.where).__code__ = codes[one.where]


def needs_import(mutant: Mutant) -> bool:
    """Does it change what a module does while it is imported?"""
    return any(not one.where for one in mutant.edits)


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """All functions of a module by their qualified names."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _function(module: ModuleType, where: str) -> FunctionType:
    """What carries the code, below all that was wrapped around it."""
    found: Any = module
    for name in where.split("."):
        found = inspect.getattr_static(found, name)
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise Rotten(f"{module.__name__}.{where} is no function")
    return found


def source_path(module: str) -> Path:
    """Where a product module is, without importing it."""
    package = importlib.util.find_spec(PRODUCT)
    if package is None or package.origin is None:
        raise Rotten(f"{PRODUCT} is not installed")
    below = Path(package.origin).parent.joinpath(*module.split(".")[1:])
    for path in (below.with_suffix(".py"), below / "__init__.py"):
        if path.is_file():
            return path
    raise Rotten(f"there is no module {module}")


def _apply(source: str, one: Edit) -> str:
    lines = source.splitlines(keepends=True)
    first, last = (0, len(lines)) if not one.where else _span(source, one)
    text = "".join(lines[first:last])
    if one.old is None:
        changed = _indented(one.new, text)
    else:
        if text.count(one.old) != 1:
            raise Rotten(f"{one.old!r} is there {text.count(one.old)} times")
        changed = text.replace(one.old, one.new)
    result = "".join([*lines[:first], changed, *lines[last:]])
    compile(result, one.module, "exec", dont_inherit=True)
    return result


def _span(source: str, one: Edit) -> tuple[int, int]:
    """The lines of a function, or those of its body."""
    scope: Sequence[ast.stmt] = ast.parse(source).body
    found: ast.AST | None = None
    for name in one.where.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((node for node in scope if isinstance(node, kinds) and node.name == name), None)
        if found is None:
            raise Rotten("there is no such function")
        scope = found.body
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    assert found.end_lineno is not None
    begins = found.body[0] if one.old is None else found
    return begins.lineno - 1, found.end_lineno


def _indented(new: str, text: str) -> str:
    blanks = text[: len(text) - len(text.lstrip(" "))]
    return "".join(f"{blanks}{line}\n" for line in new.splitlines())


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._changed = source

    def get_code(self, fullname: str) -> CodeType:
        """Never from or to a cache of compiled files."""
        return compile(self._changed, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self,
        fullname: str,
        path: Iterable[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Only for what is changed."""
        if fullname not in self._sources:
            return None
        where = source_path(fullname)
        return importlib.util.spec_from_file_location(
            fullname, where, loader=_Loader(fullname, str(where), self._sources[fullname])
        )
