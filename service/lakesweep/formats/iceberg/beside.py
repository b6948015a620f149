"""What another format may use of Iceberg metadata next to its own: the only module here that another format imports.

Delta needs it: UniForm keeps Iceberg metadata in a Delta table's directory, and what it names stays.
"""

from __future__ import annotations

from lakesweep.formats.iceberg.decode import MANIFEST, ManifestRow, decode, decode_list
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, plain_text

__all__ = ["MANIFEST", "METADATA_SUFFIXES", "ManifestRow", "decode", "decode_list", "plain_text"]
