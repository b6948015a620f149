"""JSON objects read field by field. Pure. Whatever is not as expected is Unreadable, naming file and field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakesweep.model.errors import Unreadable


class JsonFields:
    """One JSON object of a named file, at `where` in it (`snapshots[2]`). An absent text or number is None, or a fault
    if it is required; an absent list or map is empty."""

    def __init__(self, address: str, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise Unreadable(address, f"{where or 'the document'} is not a JSON object")
        self._address = address
        self._value: dict[str, Any] = value
        self._where = where

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if not value:
            raise self.fault(name, "is missing or empty")
        return value

    def optional_text(self, name: str) -> str | None:
        value = self._value.get(name)
        if value is not None and not isinstance(value, str):
            raise self.fault(name, "is not a string")
        return value

    def integer(self, name: str) -> int:
        value = self.optional_integer(name)
        if value is None:
            raise self.fault(name, "is missing")
        return value

    def optional_integer(self, name: str) -> int | None:
        value = self._value.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise self.fault(name, "is not a whole number")
        return value

    def objects(self, name: str) -> Iterator[JsonFields]:
        for index, item in enumerate(self.items(name)):
            yield JsonFields(self._address, item, f"{self._path(name)}[{index}]")

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(isinstance(value, str) and value for value in values):
            raise self.fault(name, "contains something that is not a string")
        return tuple(values)

    def items(self, name: str) -> list[Any]:
        value = self._value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fault(name, "is not a list")
        return value

    def members(self, name: str) -> Iterator[tuple[str, JsonFields]]:
        for key, value in self.mapping(name).items():
            yield key, JsonFields(self._address, value, f"{self._path(name)}.{key}")

    def strings(self, name: str) -> dict[str, str]:
        """A map of strings. Some writers put bare numbers and booleans there: they mean their text."""
        return {key: _as_text(value) for key, value in self.mapping(name).items() if value is not None}

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._value.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.fault(name, "is not a map")
        return value

    def has(self, name: str) -> bool:
        return self._value.get(name) is not None

    def fault(self, name: str, why: str) -> Unreadable:
        return Unreadable(self._address, f"field {self._path(name)} {why}")

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
