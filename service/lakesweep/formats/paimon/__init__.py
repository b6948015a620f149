"""Apache Paimon: snapshots, manifests, tags, branches, consumers and changelogs of one table directory.

    options, schema, snapshots, binaryrow, names     what the files say, decoded; pure
    manifests                                        entries of manifests and manifest lists; pure
    retention, partitions, times                     which snapshots and partitions go; pure
    liveness                                         which files that manifests spell are dead; pure
    layout                                           what a listed path is and when it may go; pure
    reader, references                               the same, read from storage
    commit, merge, drop                              writing a new snapshot
    table, warehouse                                 the ports

The table's own log is the truth: hints are written for other readers and never trusted.
"""
