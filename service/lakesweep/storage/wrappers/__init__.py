"""Wrappers around any store, one concern each. `registry` applies them in a fixed order."""
