"""Apache Paimon: snapshots, manifests, tags, branches, consumers and changelogs of one table directory.

    options, schema, snapshots, binaryrow, names     what the small files say, decoded; pure
    manifests                                        what lists and manifests say, guarded against short reads; pure
    decode                                           which names manifests keep, and which of those are dead; pure
    retention, partitions                            which snapshots, changelogs and partitions go; pure
    state                                            what must stay readable; pure
    layout                                           what a listed path is and when it may go; pure
    files, reader, lists, references, load           the same, read from storage
    merge                                            which manifests a commit joins; pure
    commit_files, commit, drop                       writing a new snapshot
    view, table, warehouse                           the ports

The table's own log is the truth: hints are written for other readers and never trusted.
"""
