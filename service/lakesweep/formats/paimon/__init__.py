"""Apache Paimon: snapshots, manifests, tags, branches, consumers and changelogs of one table directory.

    options, schema, snapshots, binaryrow, names     what the small files say, decoded; pure
    manifests, decode                                what lists and manifests say, guarded against short reads; pure
    retention, partitions, times, expiry             which snapshots, changelogs and partitions go; pure
    needs, liveness                                  what must stay readable, and which spelled names are dead; pure
    layout                                           what a listed path is and when it may go; pure
    files, reader, lists, scan, references, load     the same, read from storage
    merge, stats, shapes                             what a commit writes; pure
    draft, commit, drop                              writing a new snapshot
    table, warehouse                                 the ports; tidy is what they ask for from outside

The table's own log is the truth: hints are written for other readers and never trusted.
"""
