"""Delta Lake: expired log files go by the log-cleanup walk, data files by the rules of VACUUM.

Read in this order:
    names, log        what the files of `_delta_log` are, and which of them make the newest state
    protocol          may we touch this table at all, and what do its properties say
    actions, paths    what commits and checkpoints name, as raw addresses
    retention         the walk: which log versions go (pure)
    tail, decode      what is referenced: commits behind the checkpoint, and the checkpoint itself
    layout            what an unreferenced object is, by name and place (pure)
    load, table       the port, and the reading behind it
    format            which tables a location holds
"""
