"""Turn pydantic's errors into sentences: the key, the value, what is allowed. Never shows a secret."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lakesweep.settings import checks
from lakesweep.settings.schema import Settings
from lakesweep.settings.secrets import MASK, is_secret, mask_text

Key = tuple[str | int, ...]

_ALLOWED = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "string_type": "must be a string in quotes",
    "string_too_short": "must not be empty",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "missing": "is required",
}
"""Replacements for pydantic's messages that would not help somebody who writes TOML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultMessage:
    """One fault: where it is, whether it is between several settings, and the sentence."""

    key: Key
    name: str
    between: bool
    sentence: str


def describe(error: ValidationError, document: dict[str, Any], source: Callable[[Key], str]) -> Iterator[FaultMessage]:
    """One sentence per fault. `source` names the file or the variable that a key came from."""
    for details in error.errors(include_url=False):
        key = details["loc"]
        name = _name(key, document)
        sentence = f"{source(key)}: {name}{_shown(details)}: {_allowed(details)}"
        yield FaultMessage(key=key, name=name, between=details["type"] == checks.BETWEEN, sentence=sentence)


def known_keys(model: type[BaseModel] = Settings, above: Key = ()) -> Iterator[Key]:
    """Every known key, except inside arrays of tables."""
    for field, info in model.model_fields.items():
        below = _model_in(info.annotation)
        yield (*above, field)
        if below is not None and not _is_array(info.annotation):
            yield from known_keys(below, (*above, field))


def _name(key: Key, document: Any) -> str:
    """Dotted, with the id of a tenant, dataset or table where it has one: tenants[acme].root."""
    text = ""
    for part in key:
        if isinstance(part, str):
            text += f".{part}" if text else part
            document = document.get(part) if isinstance(document, dict) else None
            continue
        document = document[part] if isinstance(document, list | tuple) and part < len(document) else None
        label = (document.get("id") or document.get("name")) if isinstance(document, dict) else None
        text += f"[{label}]" if isinstance(label, str) else f"[#{part + 1}]"
    return text


def _shown(details: ErrorDetails) -> str:
    value, key = details["input"], details["loc"]
    if details["type"] in ("missing", "extra_forbidden") or value is None or isinstance(value, dict | list | tuple):
        return ""
    if "catalog" in key or "conf" in key or any(is_secret(str(part)) for part in key):
        return f" = {MASK}"
    return f" = {mask_text(json.dumps(value, default=str, ensure_ascii=False))}"


def _allowed(details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        return _unknown(details["loc"])
    if details["type"] == "tuple_type":
        of_tables = details["loc"][-1] in ("tenants", "datasets", "tables")
        return "must be an array of tables, written [[…]]" if of_tables else 'must be an array, written ["…"]'
    if details["type"] in _ALLOWED:
        return _ALLOWED[details["type"]]
    if details["type"] == "string_pattern_mismatch":
        example = "sc://host:port" if details["loc"][-1] == "remote" else "http://host:port or https://host"
        return f"must be of the form {example}"
    message = details["msg"].replace("Input should be", "must be")
    return message[0].lower() + message[1:]


def _unknown(key: Key) -> str:
    wrong, allowed = str(key[-1]), list(_model_at(key[:-1]).model_fields)
    if near := difflib.get_close_matches(wrong, allowed, n=1):
        return f"unknown key, did you mean '{near[0]}'?"
    if elsewhere := [known for known in known_keys() if known[-1] == wrong]:
        return f"unknown key here, did you mean '{'.'.join(map(str, elsewhere[0]))}'?"
    return f"unknown key, allowed here: {', '.join(sorted(allowed))}"


def _model_at(key: Key) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for part in key:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The settings group in an annotation, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)


def _is_array(annotation: Any) -> bool:
    return Ellipsis in get_args(annotation)
