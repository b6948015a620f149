"""Describe a catalog and its errors: one sentence, no secrets. Pure text work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.exceptions import NoSuchPropertyException, NotInstalledError

from lakesweep.model.errors import CatalogUnavailable, LakesweepError, SettingsError
from lakesweep.settings import catalogs

_SECRET_NAME = re.compile(r"secret|token|password|credential|key|auth|header\.", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=//)[^/@\s]*@")
_QUERY = re.compile(r"\?.*$")
_SENTENCE_CHARACTERS = 300

_BAD_PROPERTIES = (ValueError, KeyError, TypeError, ImportError, NotInstalledError, NoSuchPropertyException)
_BAD_URL_NAMES = ("ArgumentError", "NoSuchModuleError", "MissingSchema", "InvalidSchema", "InvalidURL")
"""Errors of client libraries that say the address itself is wrong; matched by name, those libraries live elsewhere."""

_QUOTING = re.compile(r"hive_metastore\.|thrift\.Thrift\.")
"""Errors of a metastore contain its own text, which is not passed on."""


class AnswerRefused(Exception):
    """A server's answer, or a request that it asked for, is against our rules. The text is ours alone."""


class Describer:
    """Knows which texts of one catalog's properties must never be printed."""

    def __init__(self, name: str, properties: Mapping[str, Any]) -> None:
        uri = _QUERY.sub("", _USER_INFO.sub("", str(properties.get("uri", ""))))
        kind = properties.get("type") or properties.get("py-catalog-impl") or ""
        self._kind = str(kind)
        place = " at ".join(part for part in (str(kind), uri) if part)
        self._label = f"catalog {name} ({place})" if place else f"catalog {name}"
        self._secrets = sorted(set(_secrets(properties)), key=len, reverse=True)

    def __str__(self) -> str:
        return self._label

    def sentence(self, exc: BaseException) -> str:
        """The first line of an error, without secrets and without a server's own text."""
        is_quoting = _QUOTING.match(f"{type(exc).__module__}.")
        text = "" if is_quoting else str(exc).strip().partition("\n")[0]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _USER_INFO.sub("", text)
        if isinstance(exc, AnswerRefused):
            return text
        name = type(exc).__name__
        return f"{name}: {text[:_SENTENCE_CHARACTERS]}" if text else name

    def unavailable(self, what: str, exc: BaseException) -> CatalogUnavailable:
        return CatalogUnavailable(f"{self} cannot be used ({what}): {self.sentence(exc)}")

    def connect_error(self, exc: BaseException) -> LakesweepError:
        """Wrong properties must be fixed by the operator; anything else may pass by itself."""
        if isinstance(exc, _BAD_PROPERTIES) and not isinstance(exc, OSError | UnicodeError):
            bad = True
        else:
            bad = type(exc).__name__ in _BAD_URL_NAMES
        if isinstance(exc, NotInstalledError) and (remedy := catalogs.remedy_for(self._kind)):
            return SettingsError(f"{self} needs a client that is not installed: {remedy}")
        if bad:
            return SettingsError(f"the properties of {self} are invalid: {self.sentence(exc)}")
        return self.unavailable("connect", exc)


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif _SECRET_NAME.search(name):
            yield from (part for part in (str(value), *str(value).split(":")) if len(part) > 2)
        elif name == "uri":
            yield from (found.group().rstrip("@").rpartition(":")[2] for found in _USER_INFO.finditer(str(value)))
