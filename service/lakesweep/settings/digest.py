"""Tell two sets of settings apart without telling what they are. Secrets do not go in: a digest can be guessed at."""

from __future__ import annotations

import hashlib
import json

from lakesweep.settings.schema import Settings
from lakesweep.settings.secrets import mask


def digest(settings: Settings) -> str:
    """SHA-256 of everything that is set, defaults included. Equal settings, equal digest."""
    shown = mask(settings.model_dump(mode="json"))
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
