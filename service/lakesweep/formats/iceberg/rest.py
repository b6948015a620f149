"""Iceberg's REST protocol towards a server that is not trusted. The one place that looks inside pyiceberg's client. A
server's first answer has properties that pyiceberg would take over: `auth` names code that is then called, `uri` sends
our token elsewhere, `ssl` opens files. Two plain texts of them are needed and taken; all else is what the operator
wrote. How requests travel is in `http_guard`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

from pyiceberg.catalog import WAREHOUSE_LOCATION, rest
from pyiceberg.catalog.rest.auth import OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import AuthorizationExpiredError, NoSuchTableError, RESTError, UnauthorizedError
from requests import HTTPError, Response, Session

from lakesweep.formats.iceberg.catalog import Identifier, Pointer
from lakesweep.formats.iceberg.catalog_errors import AnswerRefused
from lakesweep.formats.iceberg.http_guard import HttpGuard
from lakesweep.model.errors import CatalogUnavailable

FROM_SERVER = frozenset({rest.PREFIX, rest.NAMESPACE_SEPARATOR_PROPERTY})
"""Of a server's `defaults` and `overrides`: part of the addresses we ask, so it is checked as one."""
FROM_TABLE = frozenset({"token"})
"""Of the `config` in a table's answer: what the commit of that table is signed with, sent to the same server."""

_UNAUTHORIZED = (401, 419)
_NOT_FOUND = 404
_BAD_REQUEST = 400
_TEXT_CHARACTERS = 8192
_OUTSIDE_A_PATH = frozenset("?#\\")


class GuardedRestCatalog(rest.RestCatalog):
    """pyiceberg's client, without the server's influence on it."""

    def __init__(self, name: str, timeout_seconds: float, **properties: Any) -> None:
        self.guard = HttpGuard(_configured(properties), timeout_seconds)
        with self.guard.one_call():
            super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        """The first thing that pyiceberg does with each new session."""
        self.guard.attach(session)
        super()._config_headers(session)

    def _create_session(self) -> Session:
        session = super()._create_session()
        if isinstance(self._auth_manager, OAuth2AuthManager):
            self._auth_manager.token_provider = _GuardedTokens(self.guard, self._auth_manager.token_provider)
        return session

    def _fetch_config(self) -> None:
        warehouse = self.properties.get(WAREHOUSE_LOCATION)
        with self._create_session() as session:
            response = session.get(
                self.url(rest.Endpoints.get_config, prefixed=False),
                params={WAREHOUSE_LOCATION: warehouse} if warehouse else {},
            )
        _raise_for_status(response)
        answer = _document(response)
        self.properties = {
            **_plain_texts(answer.get("defaults"), FROM_SERVER),
            **self.properties,
            **_plain_texts(answer.get("overrides"), FROM_SERVER),
        }
        _refuse_odd_path(self.properties.get(rest.PREFIX, ""), "prefix")
        separator = self.properties.get(rest.NAMESPACE_SEPARATOR_PROPERTY) or rest.DEFAULT_NAMESPACE_SEPARATOR
        self._namespace_separator = unquote(separator)
        _refuse_odd_path(f"a{self._namespace_separator}b", "namespace-separator", slashes=False)
        self._supported_endpoints = _endpoints(answer.get("endpoints"))


class _GuardedTokens(OAuth2TokenProvider):
    """pyiceberg asks for these tokens without a time limit, and follows redirects with the client's secret."""

    def __init__(self, guard: HttpGuard, given: OAuth2TokenProvider) -> None:
        super().__init__(
            given.client_id, given.client_secret, given.token_url, given.scope, given.refresh_margin, given.expires_in
        )
        self._guard = guard

    def _refresh_token(self) -> None:
        with Session() as session:
            self._guard.attach(session)
            data = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
            response = session.post(self.token_url, data=data, headers={"Authorization": self._client_secret_header})
            _raise_for_status(response)
            answer = _document(response)
            token, seconds = answer.get("access_token"), answer.get("expires_in", self.expires_in)
            if not isinstance(token, str) or not isinstance(seconds, int | float):
                raise AnswerRefused("the token server's answer has no access_token or no expires_in")
            self._token = token
            self._expires_at = int(time.monotonic() + seconds - self.refresh_margin)


def load_pointer(catalog: rest.RestCatalog, identifier: Identifier) -> Pointer:
    """From the server's raw answer: pyiceberg would parse all metadata, which fails on what it does not know."""
    try:
        answer = _get(catalog, identifier)
    except (AuthorizationExpiredError, UnauthorizedError):
        catalog._refresh_token()  # noqa: SLF001 - as pyiceberg does for its own calls
        answer = _get(catalog, identifier)
    location = answer.get("metadata-location")
    if not isinstance(location, str) or not location:
        raise CatalogUnavailable(f"the catalog does not say where the metadata of {'.'.join(identifier)} is")
    try:
        shown = answer.get("metadata") or {}
        return Pointer(
            metadata_location=location,
            properties={name: str(text) for name, text in (shown.get("properties") or {}).items()},
            snapshots=frozenset(entry["snapshot-id"] for entry in shown.get("snapshots") or ()),
            refs={name: ref["snapshot-id"] for name, ref in (shown.get("refs") or {}).items()},
            config=_plain_texts(answer.get("config"), FROM_TABLE),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CatalogUnavailable(f"the catalog's answer for {'.'.join(identifier)} cannot be understood") from None


def _plain_texts(given: object, known: frozenset[str]) -> dict[str, str]:
    """Of a server's properties those that we know and need, if they are texts of a sane length."""
    if not isinstance(given, Mapping):
        return {}
    return {
        name: text
        for name, text in given.items()
        if name in known and isinstance(text, str) and len(text) <= _TEXT_CHARACTERS and text.isprintable()
    }


def _get(catalog: rest.RestCatalog, identifier: Identifier) -> dict[str, Any]:
    path = catalog._split_identifier_for_path(identifier)  # noqa: SLF001 - the server's own namespace separator
    session: Any = catalog._session  # noqa: SLF001 - it carries headers, TLS and tokens
    # Ref heads suffice: of the answer only the pointer, the properties and the configuration are used. Iceberg's own
    # server cannot cut the snapshots of a table with statistics and answers 400, so it is asked for all of them then.
    response = session.get(catalog.url(rest.Endpoints.load_table, **path), params={"snapshots": "refs"})
    if response.status_code == _BAD_REQUEST:
        response = session.get(catalog.url(rest.Endpoints.load_table, **path))
    if response.status_code == _NOT_FOUND:
        raise NoSuchTableError(".".join(identifier))
    if response.status_code in _UNAUTHORIZED:
        raise UnauthorizedError(f"HTTP {response.status_code}")
    if not response.ok:
        raise RESTError(f"HTTP {response.status_code}")
    return _document(response)


def _configured(properties: Mapping[str, Any]) -> list[str]:
    """Every address that the operator wrote down: the catalog's and, where there is one, that of the token server."""
    addresses = [properties["uri"], properties.get(rest.OAUTH2_SERVER_URI)]
    auth = properties.get("auth")
    oauth = auth.get("oauth2") if isinstance(auth, Mapping) else None
    if isinstance(oauth, Mapping):
        addresses.append(oauth.get("token_url"))
    return [str(address) for address in addresses if address]


def _raise_for_status(response: Response) -> None:
    try:
        response.raise_for_status()
    except HTTPError as exc:
        _handle_non_200_response(exc, {})


def _document(response: Response) -> dict[str, Any]:
    try:
        answer = json.loads(response.content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise AnswerRefused("its answer is not a JSON object")
    return answer


def _endpoints(given: object) -> set[rest.Endpoint]:
    if not given:
        return set(rest.DEFAULT_ENDPOINTS)
    try:
        return {rest.Endpoint.from_string(one) for one in cast("list[str]", given)}
    except (ValueError, TypeError, AttributeError):
        raise AnswerRefused("its list of endpoints cannot be understood") from None


def _refuse_odd_path(text: str, name: str, *, slashes: bool = True) -> None:
    """It becomes part of every address that is requested, and must not leave the place it is put in."""
    decoded = unquote(unquote(text))
    steps = decoded.split("/")
    if _OUTSIDE_A_PATH & set(decoded) or {".", ".."} & set(steps) or (not slashes and len(steps) > 1):
        raise AnswerRefused(f"its {name} cannot be part of a URL")
