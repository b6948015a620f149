"""Translate errors of the S3 client. The only place that knows the vendor's codes. Every message names the address, the
endpoint and, where a person can help, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from botocore import exceptions as boto

from lakesweep.model.errors import Denied, FailureKind, NotFound, SettingsError, StorageError, Unavailable

THROTTLING = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "503", "429"}
)
"""Codes of throttling. HEAD responses have no body, so the bare status replaces the code."""

CHANGED = frozenset({"PreconditionFailed", "412"})
"""The store compared etags: it has another object than the one that was judged or inspected."""

_PASSING = THROTTLING | {
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "OperationAborted",
    "500",
    "502",
    "504",
}
_BAD_KEYS = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"}
)
"""The store rejects the credentials themselves, whatever they would allow."""
_DENIED = _BAD_KEYS | {"AccessDenied", "AllAccessDisabled", "RequestTimeTooSkewed", "403"}
_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"})
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.NoAuthTokenError,
    boto.SSOError,
)


class Throttled(Unavailable):
    """The store wants fewer requests."""

    kind = FailureKind.THROTTLED


def is_passing(code: str) -> bool:
    """May the same request succeed a little later?"""
    return code in _PASSING


def kind_of(code: str) -> FailureKind:
    """The failure that a code means for one key of a page."""
    if code in THROTTLING:
        return FailureKind.THROTTLED
    if is_passing(code):
        return FailureKind.UNAVAILABLE
    return FailureKind.DENIED if code in _DENIED else FailureKind.OTHER


@contextmanager
def translating(address: str, endpoint: str, action: str, *, attempts: int = 1) -> Iterator[None]:
    """Translate whatever the client raises inside the block. `action` is the permission that is needed, and `attempts`
    how often the client tries a request that is not answered."""
    try:
        yield
    except boto.ClientError as exc:
        raise from_answer(exc, address, endpoint, action) from exc
    except _NO_CREDENTIALS as exc:
        raise Denied(
            address,
            f"no usable AWS credentials ({exc}): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role",
        ) from exc
    except (boto.ProfileNotFound, boto.ConfigNotFound, boto.ConfigParseError, boto.InvalidConfigError) as exc:
        raise SettingsError(f"storage.s3: {exc}") from exc
    except (boto.IncompleteReadError, boto.ResponseStreamingError, aiohttp.ClientPayloadError) as exc:
        raise _unanswered(exc, address, f"the answer of {endpoint} was cut off", attempts) from exc
    except (boto.HTTPClientError, boto.ConnectionError, aiohttp.ClientError, TimeoutError, OSError) as exc:
        raise _unanswered(exc, address, f"{endpoint} does not answer", attempts) from exc
    except boto.BotoCoreError as exc:
        raise StorageError(address, f"the request to {endpoint} could not be sent: {exc}") from exc


def _unanswered(exc: Exception, address: str, what: str, attempts: int) -> Unavailable:
    failed = Unavailable(address, f"{what}: {exc}")
    failed.tried_again = attempts > 1 and isinstance(exc, boto.HTTPClientError | boto.ConnectionError)
    return failed


def from_answer(exc: boto.ClientError, address: str, endpoint: str, action: str) -> StorageError:
    code = error_code(exc)
    metadata = exc.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    message = exc.response.get("Error", {}).get("Message") or "no message"
    what = f"{endpoint} answers {code}: {message}"
    meanings: tuple[tuple[bool, type[StorageError], str], ...] = (
        (code == "NoSuchBucket", StorageError, f"the bucket does not exist ({what})"),
        (code in _REGION, StorageError, f"{what}; set storage.s3.region to the bucket's region"),
        (code == "RequestTimeTooSkewed", Denied, f"{what}; correct this machine's clock"),
        (code in _BAD_KEYS, Denied, f"{what}; the credentials are wrong or expired"),
        (status == 403 or code == "AccessDenied", Denied, f"{what}; the credentials must allow {action} on it"),
        (status == 404 and _is_stores_own(exc, code), NotFound, f"no such object ({what})"),
        (status == 404, Unavailable, f"{what}; that is not an answer of an object store; a proxy may have sent it"),
        (status in (429, 503) or code in THROTTLING, Throttled, what),
        (status >= 500 or is_passing(code), Unavailable, what),
        (True, StorageError, what),
    )
    failed = next(kind(address, why) for applies, kind, why in meanings if applies)
    if isinstance(failed, Unavailable):
        # After very many failures the client stops repeating requests: nobody else may go on then.
        failed.tried_again = bool(metadata.get("RetryAttempts") or metadata.get("RetryQuotaReached"))
    return failed


def _is_stores_own(exc: boto.ClientError, code: str) -> bool:
    """A store names what it does not have, except in response to HEAD, which has no body. A proxy in front of it (a
    router without a route to the store) answers 404 to everything, and an object that must be kept must not look
    absent."""
    return exc.operation_name == "HeadObject" or code not in ("404", "Unknown")


def error_code(exc: boto.ClientError) -> str:
    """The store's error code, or the status if it has none."""
    return str(exc.response.get("Error", {}).get("Code") or "Unknown")
