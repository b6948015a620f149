"""Laws: hypothesis over random histories and faults. `make soak` runs the same laws with many more examples."""

import os


def examples(number: int, *, soak: int) -> int:
    """How many examples a law gets."""
    return soak if os.environ.get("SOAK") else number
