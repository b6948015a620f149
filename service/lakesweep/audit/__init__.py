"""The audit trail in a store: `trail` writes one run's part, `inspect` reads and checks what is there.

What is recorded is `audit.records`'s, the chain is `audit.chain`'. Segments are created, never overwritten and
never deleted.
"""
