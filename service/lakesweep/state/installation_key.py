"""The key of the installation: what proves that something on a disk or in an object store was written by us.

It has one home. An operator may give it (`service.installation_key`, from the environment); else the first program that
opens the state store makes it there. Replicas share the state store, so they share the key; with SQLite it is in the
database inside data_dir. It signs nothing itself: each use has a key of its own, derived by name, so that what is
signed for one purpose proves nothing for another.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from lakesweep.ports.state import StateStore

_NAME = "key"
_BYTES = 32


async def installation_key(configured: str | None, state: StateStore) -> bytes:
    """The key, made if there is none yet. `configured` is `service.installation_key`."""
    text = configured or await state.secret(_NAME, secrets.token_hex(_BYTES))
    return hashlib.sha256(text.encode()).digest()


def derived(key: bytes, purpose: str) -> bytes:
    """The key for one purpose, such as `cache`."""
    return hmac.digest(key, f"lakesweep {purpose}".encode(), "sha256")
