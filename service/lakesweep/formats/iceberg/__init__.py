"""Apache Iceberg. In the order in which one table is read:

format.py          the TableFormat port: a catalog's tables
table.py           the Table port: START HERE; it only calls what follows
metadata_source.py where the pointer comes from: a catalog, or a bare location that proves nothing
catalog.py         pyiceberg's catalogs; rest.py what it lacks; fileio.py lets it use our stores; catalog_errors.py
metadata.py        metadata.json -> values, by json_fields.py; unsupported.py what may not be cleaned
view.py            values -> IcebergView, which plans and names references; layout.py names and places
retention.py       values -> which snapshots go (pure)
expire.py          the commit; pyiceberg_roundtrip.py what a client would lose; ref_history.py whether a ref was lost
references.py      snapshots -> everything that names files; manifest_lists.py reads and remembers
decode.py          manifests and manifest lists -> rows; columns.py Avro columns by field id
foreign_tables.py  signs of another table in the same place; identity.py whose metadata file this is
lineage.py         our own line of metadata files; marks.py names of those that our expiry writes
other_histories.py metadata files beside that line keep what they name: a second catalog's may be among them
explain.py         why a file stays, in sentences
"""
