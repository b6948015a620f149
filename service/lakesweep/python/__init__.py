"""The implementation of `lakesweep.api`. Private: import only from `lakesweep`.

`sources` turns what a caller has (a location, a pyiceberg Table, a DeltaTable, a name) into settings and a target,
`calls` runs the same cycle as the command line, and `results` are the returned values.
"""
