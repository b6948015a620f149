"""A deterministic simulation of tables, writers, faults and cleanups. Start with docs/safety.md, then `story.py`."""
