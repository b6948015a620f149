"""What a person does about a refusal. A code without advice says it in its own reason."""

from __future__ import annotations

from lakesweep.model import refusal


def remedy(code: str, run_id: str) -> str | None:
    """Advice for the refusal of a run, if there is more to say than its reason."""
    advice = refusal.consequences(code).advice
    return advice and advice.replace("RUN", run_id)
