"""Settings: their schema, how they are read, and the policy that they give one table.

`schema` is the whole tree, `load` reads it (defaults < file < environment), `cascade` gives the values for one table.
Nothing here uses a store, a catalog or a clock.
"""
