"""Read the settings: defaults < one TOML file < environment. Every fault of a source is told at once.

`LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN=false` sets `orphan_cleanup.dry_run`; a whole section or array is JSON. A variable
or a key that is not known is an error: a setting with a slip in its name must not be ignored silently.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lakesweep.model.errors import SettingsError
from lakesweep.settings.error_messages import Key, Told, known_keys, tell
from lakesweep.settings.schema import Settings

PREFIX = "LAKESWEEP_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"

_KUBERNETES_LINK = re.compile(
    rf"^{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_[A-Z]+(_[A-Z]+)?)?)$"
)
"""Variables that Kubernetes sets in every pod beside a Service whose name begins with lakesweep."""

_GONE = object()

VariableOf = Callable[[Key], str | None]
"""Names the environment variable that a key's value came from, if it came from one."""


def load(config: Path | None = None) -> Settings:
    """The settings of this process. Raises SettingsError with every fault found."""
    return load_traced(config)[0]


def load_traced(config: Path | None = None) -> tuple[Settings, VariableOf]:
    """The same, and which of them the environment gave."""
    file = settings_file(config)
    document = _read_file(file) if file else {}
    variables, told = _read_environment()
    merged = _merge(document, variables)
    variable_of = _trace(variables)

    def source(key: Key) -> str:
        variable = variable_of(key)
        return f"environment variable {variable}" if variable else str(file or "settings")

    told += _all_faults(merged, source)
    if told:
        raise SettingsError(told)
    return Settings.model_validate(merged), variable_of


def settings_file(config: Path | None = None) -> Path | None:
    """The one file that is read, if there is one."""
    named = os.environ.get(CONFIG_VARIABLE)
    return config or (Path(named) if named else None)


def _all_faults(document: dict[str, Any], source: Callable[[Key], str]) -> list[str]:
    """The faults of single values, and then those between the settings that are left without them."""
    told = seen = _check(document, source)
    while any(not fault.between for fault in seen):
        document, larger = _without(document, seen), document
        if document == larger:
            break
        seen = _check(document, source)
    names = {fault.name for fault in told}
    between = [fault for fault in seen if fault.between and fault.name not in names]
    # Two tenants of the same name have the same faults, in the same words.
    return list(dict.fromkeys(fault.sentence for fault in told + between))


def _check(document: dict[str, Any], source: Callable[[Key], str]) -> list[Told]:
    try:
        Settings.model_validate(document)
    except ValidationError as error:
        return list(tell(error, document, source))
    return []


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SettingsError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{path}: not a UTF-8 text: {exc.reason} at byte {exc.start}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{path}: not valid TOML: {exc}") from exc


def _read_environment() -> tuple[dict[str, Any], list[str]]:
    """The nested document that the environment gives, and what is wrong with its variables."""
    if not any(name.upper().startswith(PREFIX) and name.upper() != CONFIG_VARIABLE for name in os.environ):
        return {}, []
    from lakesweep.settings.environment import read  # noqa: PLC0415 - slow to import, and seldom needed

    document, told = read(PREFIX)
    return document, [fault for name in os.environ if (fault := _unknown_variable(name))] + told


def _unknown_variable(name: str) -> str | None:
    upper = name.upper()
    if not upper.startswith(PREFIX) or upper == CONFIG_VARIABLE:
        return None
    if upper.removeprefix(PREFIX).split("__")[0].lower() in Settings.model_fields or _KUBERNETES_LINK.match(upper):
        return None
    meant = _near_variable(upper)
    return f"environment variable {name}: unknown setting{f', did you mean {meant}?' if meant else ''}"


def _near_variable(name: str) -> str | None:
    """The variable that is spelled much like this one, or whose own name, without its sections, is."""
    whole = {variable: variable for variable in (CONFIG_VARIABLE, *map(_variable, known_keys()))}
    tails = {variable.rpartition("__")[2]: variable for variable in reversed(whole)}
    for text, spellings in ((name, whole), (name.removeprefix(PREFIX), tails)):
        if near := difflib.get_close_matches(text, spellings, n=1, cutoff=0.8):
            return spellings[near[0]]
    return None


def _variable(key: Key) -> str:
    return PREFIX + "__".join(map(str, key)).upper()


def _trace(variables: dict[str, Any]) -> VariableOf:
    present = {name.upper() for name in os.environ}

    def variable_of(key: Key) -> str | None:
        names = (_variable(key[:length]) for length in range(len(key), 0, -1)) if _given(variables, key) else ()
        return next((name for name in names if name in present), None)

    return variable_of


def _given(document: Any, key: Key) -> bool:
    for part in key:
        if isinstance(document, dict):
            document = document.get(part, _GONE)
        elif isinstance(document, list) and isinstance(part, int) and part < len(document):
            document = document[part]
        else:
            return False
    return document is not _GONE


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _without(document: dict[str, Any], told: list[Told]) -> dict[str, Any]:
    """The document without the values at fault. An element that lacks what it needs goes as a whole."""
    at_fault = {fault.key for fault in told if _given(document, fault.key)}
    at_fault |= {fault.key[:-1] for fault in told if not _given(document, fault.key)}

    def prune(value: Any, key: Key) -> Any:
        if key in at_fault:
            return _GONE
        if isinstance(value, dict):
            kept = {name: prune(inner, (*key, name)) for name, inner in value.items()}
            return {name: inner for name, inner in kept.items() if inner is not _GONE}
        if isinstance(value, list):
            return [inner for index, item in enumerate(value) if (inner := prune(item, (*key, index))) is not _GONE]
        return value

    pruned = prune(document, ())
    return pruned if isinstance(pruned, dict) else {}
