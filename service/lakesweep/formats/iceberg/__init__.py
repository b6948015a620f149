"""Apache Iceberg.

metadata.py    metadata.json -> values; fields.py reads its JSON field by field
retention.py   values -> which snapshots go (pure)
columns.py     columns of an Avro container by field id; decode.py manifests and manifest lists
references.py  snapshots -> everything that names files
layout.py      names and places: what an unreferenced object may be
foreign.py     signs of another table in the same place
catalog.py     which metadata file is current; fileio.py lets pyiceberg use our stores; bare.py has no catalog
expire.py      the commit and its races; rewrite.py what a client-side commit would lose
table.py       the Table port; format.py the TableFormat port
"""
