"""Settings: what they are, how they are read, and which policy they give one table.

`schema` is the whole tree, `load` reads it (defaults < file < environment), `cascade` answers for one table.
Nothing here touches a store, a catalog or a clock.
"""
