"""The audit trail in a store: `trail` writes one run's part, `inspect` reads and checks what is there.

The format and the chain are `cleanup.audit`'s. Segments are created, never overwritten and never deleted.
"""
