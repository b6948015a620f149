"""Ready file lists that are read instead of listing: S3 Inventory, or any Parquet with path, size and last_modified.

`lists` finds out which data files make up the list and how old it is; `rows` turns one data file into rows of a
listing. A list is read completely or not at all: any fault in it stops the table.
"""
