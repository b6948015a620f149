"""The audit trail in a store: `trail` writes one run's part, `inspect` reads and checks what is there. `audit.records`
defines what is recorded, `audit.chain` how it is chained. Segments are created, never overwritten and never deleted."""
