"""The key of the installation: it proves that something on a disk or in an object store was written by Lakesweep.

An operator may set it (`service.installation_key`, from the environment). Otherwise the first program that opens the
state store creates it there. Replicas share the state store, so they share the key; with SQLite it is in the database
inside data_dir. It signs nothing itself: each purpose has its own key, derived by name, so that a signature for one
purpose proves nothing for another."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from lakesweep.ports.state import StateStore

_NAME = "key"
_BYTES = 32


async def installation_key(configured: str | None, state: StateStore) -> bytes:
    """The key, created if there is none yet. `configured` is `service.installation_key`."""
    text = configured or await state.secret(_NAME, secrets.token_hex(_BYTES))
    return hashlib.sha256(text.encode()).digest()


def derived(key: bytes, purpose: str) -> bytes:
    """The key for one purpose, such as `cache`."""
    return hmac.digest(key, f"lakesweep {purpose}".encode(), "sha256")
