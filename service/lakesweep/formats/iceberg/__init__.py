"""Apache Iceberg. In the order in which one table is read:

format.py          the TableFormat port: a catalog's tables
table.py           the Table port: START HERE; it only calls what follows
metadata_source.py where the pointer comes from: a catalog, or a bare location that proves nothing
catalog.py         pyiceberg's catalogs; rest.py, metastores.py what it lacks; fileio.py our stores
metadata.py        metadata.json -> values, by json_fields.py; unsupported.py what may not be cleaned
view.py            values -> IcebergView, which plans and names references; layout.py names and places
retention.py       values -> which snapshots go (pure)
expire.py          the commit; commit_metadata.py what a client writes; ref_history.py whether a ref was lost
references.py      snapshots -> everything that names files, and why one stays; manifest_lists.py reads and remembers
decode.py          manifests and manifest lists -> rows; columns.py Avro columns by field id
foreign_tables.py  signs of another table in the same place
lineage.py         our own line of metadata files, and whose metadata file this is
other_histories.py metadata files beside that line, and manifests that wait for a commit: what they name stays
"""
