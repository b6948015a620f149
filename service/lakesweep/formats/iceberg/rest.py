"""The two things we need of a REST catalog that pyiceberg does not offer. The one place that looks inside it."""

from __future__ import annotations

import functools
import json
from typing import Any, cast

from pyiceberg.catalog.rest import Endpoints, RestCatalog
from pyiceberg.exceptions import AuthorizationExpiredError, NoSuchTableError, RESTError, UnauthorizedError

Identifier = tuple[str, ...]

_UNAUTHORIZED = (401, 419)
_NOT_FOUND = 404
_BAD_REQUEST = 400
_MESSAGE_CHARACTERS = 200


def limit_time(catalog: RestCatalog, seconds: float) -> None:
    """pyiceberg waits for ever; give every request of its session a time limit."""
    session: Any = catalog._session  # noqa: SLF001 - there is no setting for it
    session.request = functools.partial(session.request, timeout=seconds)


def load_table(catalog: RestCatalog, identifier: Identifier) -> dict[str, Any]:
    """The server's raw answer: pyiceberg would parse all metadata, which fails on what it does not know."""
    try:
        return _get(catalog, identifier)
    except (AuthorizationExpiredError, UnauthorizedError):
        catalog._refresh_token()  # noqa: SLF001 - as pyiceberg does for its own calls
        return _get(catalog, identifier)


def _get(catalog: RestCatalog, identifier: Identifier) -> dict[str, Any]:
    path = catalog._split_identifier_for_path(identifier)  # noqa: SLF001 - the server's own namespace separator
    session: Any = catalog._session  # noqa: SLF001 - it carries headers, TLS and tokens
    # Ref heads suffice: of the answer only the pointer, the properties and the configuration are used. Iceberg's own
    # server cannot cut the snapshots of a table with statistics and answers 400, so it is asked for all of them then.
    response = session.get(catalog.url(Endpoints.load_table, **path), params={"snapshots": "refs"})
    if response.status_code == _BAD_REQUEST:
        response = session.get(catalog.url(Endpoints.load_table, **path))
    if response.status_code == _NOT_FOUND:
        raise NoSuchTableError(".".join(identifier))
    if response.status_code in _UNAUTHORIZED:
        raise UnauthorizedError(f"HTTP {response.status_code}")
    if not response.ok:
        raise RESTError(f"HTTP {response.status_code}: {response.text[:_MESSAGE_CHARACTERS]}")
    return cast("dict[str, Any]", json.loads(response.text))
