"""Read the settings: defaults < one TOML file < environment. All faults of a source are reported at once.

`LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN=false` sets `orphan_cleanup.dry_run`; a whole section or array is JSON. An unknown
variable or key is an error: a misspelled setting must not be ignored silently.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from lakesweep.model.errors import SettingsError
from lakesweep.settings.error_messages import FaultMessage, Key, describe, known_keys
from lakesweep.settings.schema import Settings

PREFIX = "LAKESWEEP_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
NOT_SETTINGS = {CONFIG_VARIABLE, f"{PREFIX}PURE_PYTHON"}
"""Variables that are read before, and separately from, the settings."""

_KUBERNETES_LINK = re.compile(
    rf"^{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_[A-Z]+(_[A-Z]+)?)?)$"
)
"""Variables that Kubernetes sets in every pod of a namespace with a Service whose name begins with lakesweep."""

_GONE = object()

VariableOf = Callable[[Key], str | None]
"""Returns the environment variable that a key's value came from, if any."""


def load(config: Path | None = None) -> Settings:
    """The settings of this process. Raises SettingsError with every fault found."""
    return load_traced(config)[0]


def load_traced(config: Path | None = None) -> tuple[Settings, VariableOf]:
    """The same, and which of them came from the environment."""
    file = settings_file(config)
    document = _read_file(file) if file else {}
    variables, faults = _read_environment()
    merged = _merge(_merge(document, variables), _fixed.get())
    variable_of = _trace(variables)
    shown = file and (object_address(file) or file)

    def source(key: Key) -> str:
        variable = variable_of(key)
        return f"environment variable {variable}" if variable else str(shown or "settings")

    faults += _all_faults(merged, source)
    if faults:
        raise SettingsError(faults)
    return Settings.model_validate(merged), variable_of


def settings_file(config: Path | None = None) -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    return config or (Path(named) if named else None)


def _all_faults(document: dict[str, Any], source: Callable[[Key], str]) -> list[str]:
    """The faults of single values, and then those between the remaining settings."""
    faults = seen = _check(document, source)
    while any(not fault.between for fault in seen):
        document, larger = _without(document, seen), document
        if document == larger:
            break
        seen = _check(document, source)
    names = {fault.name for fault in faults}
    between = [fault for fault in seen if fault.between and fault.name not in names]
    # Two tenants of the same name have identical fault messages.
    return list(dict.fromkeys(fault.sentence for fault in faults + between))


def _check(document: dict[str, Any], source: Callable[[Key], str]) -> list[FaultMessage]:
    try:
        Settings.model_validate(document)
    except ValidationError as error:
        return list(describe(error, document, source))
    return []


def object_address(file: Path) -> str | None:
    """The address of a settings file in an object store. A Path drops one of the slashes."""
    found = re.match(r"([a-z][a-z0-9+.-]+):/+(?=[^/])", str(file))
    return None if found is None else f"{found.group(1)}://{str(file)[found.end() :]}"


def read_objects_by(read: Callable[[str], bytes]) -> None:
    """Reads a settings file in an object store. Injected, because the storage layer is above the settings."""
    _readers[:] = [read]


_readers: list[Callable[[str], bytes]] = []


@contextmanager
def fixed(document: Mapping[str, Any]) -> Iterator[None]:
    """While the block runs, these values are used, whatever the file and the environment say. None removes one."""
    before = _fixed.set(document)
    try:
        yield
    finally:
        _fixed.reset(before)


_fixed: ContextVar[Mapping[str, Any]] = ContextVar("fixed", default=MappingProxyType({}))


def _text_of(path: Path) -> str:
    address = object_address(path)
    if address is None:
        return path.read_text(encoding="utf-8")
    if not _readers:
        raise SettingsError(f"cannot read {address}: only the command line reads settings from an object store")
    return _readers[0](address).decode()


def _read_file(path: Path) -> dict[str, Any]:
    shown = object_address(path) or path
    try:
        return tomllib.loads(_text_of(path))
    except OSError as exc:
        raise SettingsError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{shown}: not a UTF-8 text: {exc.reason} at byte {exc.start}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{shown}: not valid TOML: {exc}") from exc


def _read_environment() -> tuple[dict[str, Any], list[str]]:
    """The nested document from the environment, and the faults of its variables."""
    if not any(name.upper().startswith(PREFIX) and name.upper() not in NOT_SETTINGS for name in os.environ):
        return {}, []
    unknown = [fault for name in os.environ if (fault := _unknown_variable(name))]
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict  # noqa: PLC0415 - slow, and
    from pydantic_settings import SettingsError as EnvironmentFault  # noqa: PLC0415 - seldom needed

    class _Environment(Settings, BaseSettings):
        """Only defines how variables are named; it is never instantiated."""

        model_config = SettingsConfigDict(env_nested_delimiter="__", env_ignore_empty=True)

    faults: list[str] = []
    source = EnvSettingsSource(_Environment, env_prefix=PREFIX)
    while True:
        try:
            return source(), unknown + faults
        except EnvironmentFault as exc:
            text, found = getattr(exc.__cause__, "doc", None), source.env_vars.items()
            wrong = sorted(name for name, value in found if value == text and name.startswith(PREFIX.lower()))
            if not wrong:
                raise SettingsError(f"environment: {exc}") from exc
            faults += [f"environment variable {name.upper()}: must be JSON: {exc.__cause__}" for name in wrong]
            source.env_vars = {name: value for name, value in found if name not in wrong}


def _unknown_variable(name: str) -> str | None:
    upper = name.upper()
    if not upper.startswith(PREFIX) or upper in NOT_SETTINGS:
        return None
    if upper.removeprefix(PREFIX).split("__")[0].lower() in Settings.model_fields or _KUBERNETES_LINK.match(upper):
        return None
    meant = _near_variable(upper)
    return f"environment variable {name}: unknown setting{f', did you mean {meant}?' if meant else ''}"


def _near_variable(name: str) -> str | None:
    """A known variable with a similar name, or with the same name in another section."""
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


def _without(document: dict[str, Any], faults: list[FaultMessage]) -> dict[str, Any]:
    """The document without the faulty values. An element that lacks a required key is removed completely."""
    at_fault = {fault.key for fault in faults if _given(document, fault.key)}
    at_fault |= {fault.key[:-1] for fault in faults if not _given(document, fault.key)}

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
