"""The audit trail in a store: `trail` writes one run's part, `inspect` reads and checks what is there.

What is recorded is `cleanup.audit`'s, the chain is `cleanup.segments`'. Segments are created, never overwritten and
never deleted.
"""
