"""What survives a restart: runs, plan headers, the journal of batches, leases, due times, ledger headers.
`registry.open_state` is the way in. `rules.py` decides; `store.py` only stores."""
