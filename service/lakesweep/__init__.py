"""Lakesweep keeps lakehouse tables clean: it expires snapshots, then deletes what no snapshot references.

The law: a file is deleted only when it is proven unreferenced. Doubt keeps the file.

Layers, imports point down:

    cli        commands, text and JSON for people and scripts
    daemon     the long-running service; `app.py` puts everything together
    admin      the HTTP API
    engines    find orphans: in this process, or on Spark
    formats    Iceberg, Paimon, Delta: what a table's metadata says
    storage    S3, local disk, memory: what is really stored
    state      runs, leases, journal: what survives a restart
    audit      the record of every decision and what became of it
    cleanup    the algorithm; start reading in `cleanup/cycle.py`
    telemetry  logs and metrics
    settings   every setting, with its unit and reason
    model      the nouns

A new format is a package in `formats`, a new store a module in `storage`, each with a line in its registry and
a parameter in its contract suite under `tests/contract`.
"""

__version__ = "0.1.0"
