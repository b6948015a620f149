"""Delta Lake: expired log files go by the log-cleanup walk, data files by the rules of VACUUM.

Read in this order:
    log               what the files of `_delta_log` are, and which checkpoints are complete
    protocol          may we touch this table at all, and what do its properties say
    paths, files      what commits and checkpoints name, as raw addresses: one by one, and by the column
    actions           commits and JSON checkpoints, bytes to values
    retention, expire the walk: which log versions go, why not, and when next (pure)
    checkpoint, state what is referenced: the checkpoint, and the commits behind it replayed
    layout            what an unreferenced object is, by name and place (pure)
    other_commits     what commits removed lately below the checkpoint, or name that may yet be published: it stays
    lite              a vacuum by the log alone
    uniform           Iceberg metadata beside the log: what it names stays
    load, view, table the reading, and the ports
    format            which tables a location holds

Where we differ from Delta's own VACUUM and log cleanup, always on the safe side or against a leak:
    - A checkpoint must have been opened, with all its parts and sidecars and its own commit, before the log may
      begin with it. Everything at that version stays. Lost parts, compacted files and Hadoop's checksums of log
      files below it go, too. We write nothing: no classic checkpoint beside a V2 one, no record of the vacuum.
    - On tables with in-commit timestamps a version is as young as the younger of its file and its timestamp.
    - Only names that Delta writers give may go; VACUUM deletes any old file that is not hidden, and indexes of live
      data files as well.
    - Removed files wait for a day at least, and also if a checkpoint has forgotten their removal.
    - Files that no commit names wait for the longer of the service's grace period and the table's retention.
    - A path outside the root protects every file below the root that it may mean under another name of the root.
    - A table with another table inside is refused; VACUUM deletes the inner one's files.
    - What Iceberg metadata right at the root names stays, unless UniForm keeps it up to date.
    - A lite vacuum says what it cannot see instead of refusing the table.
"""
