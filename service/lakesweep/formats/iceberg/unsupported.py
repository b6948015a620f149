"""Tables whose metadata file does not describe all of their files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from lakesweep.formats.iceberg.catalog import Pointer
from lakesweep.formats.iceberg.metadata import GC_ENABLED, HISTORY_PROPERTIES, HistoryProperties, TableMetadata
from lakesweep.model.errors import Refused, Unreadable
from lakesweep.model.refusal import RefusalCode


def refuse_uncleanable(metadata: TableMetadata, shown: Mapping[str, str] | None = None) -> None:
    """Raise Refused for tables whose metadata does not describe all of their files. `shown` are the properties in the
    catalog's answer: that is where Nessie gives itself away, and clients of a server see no others."""
    if any(name.startswith("nessie.") for name in (*metadata.properties, *(shown or {}))):
        raise Refused(
            RefusalCode.GC_DISABLED,
            "the table is managed by Nessie: its metadata shows only the current snapshot, older ones live in "
            "Nessie's own history. Use Nessie GC (nessie-gc) to clean it",
        )
    # As Iceberg reads it: any value but "true" switches garbage collection off.
    if any(properties.get(GC_ENABLED, "true").lower() != "true" for properties in (metadata.properties, shown or {})):
        raise Refused(
            RefusalCode.GC_DISABLED,
            "the table has gc.enabled=false: other tables may share its files, so none of them may be deleted",
        )
    _refuse_negative(metadata)
    if metadata.encrypted:
        raise Refused(RefusalCode.ENCRYPTED, "the table is encrypted: its manifests cannot be read without its keys")


def _refuse_negative(metadata: TableMetadata) -> None:
    """People write -1 for "never"; a rule that compares ages reads it as "everything"."""
    holders = [(HISTORY_PROPERTIES, metadata.history, ""), *(("", ref, f" of {ref}") for ref in metadata.refs)]
    limits = [
        (f"{prefix}{field.name.replace('_', '-')}{owner}", getattr(holder, field.name))
        for prefix, holder, owner in holders
        for field in fields(HistoryProperties)
    ]
    for name, value in limits:
        if value is not None and value < 0:
            raise Refused(
                RefusalCode.UNREADABLE_PROPERTY,
                f"{name} is {value}: a negative retention may mean never or at once. Set a large number to keep for "
                "ever, or remove it",
            )


def refuse_outdated(metadata: TableMetadata, pointer: Pointer) -> None:
    """Raise Unreadable if the catalog shows a snapshot, a ref or a retention that its metadata file does not have."""
    snapshots = set(pointer.snapshots) - {entry.id for entry in metadata.snapshots}
    if snapshots:
        raise _outdated(metadata, f"snapshot {min(snapshots)}")
    refs = set(pointer.refs.items()) - {(ref.name, ref.snapshot_id) for ref in metadata.refs}
    if refs:
        raise _outdated(metadata, "{} at snapshot {}".format(*min(refs)))
    # A catalog that shows no property at all does not answer with them.
    if pointer.properties and _history(pointer.properties) != _history(metadata.properties):
        raise _outdated(metadata, "another history.expire property")


def _history(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name.startswith(HISTORY_PROPERTIES)}


def _outdated(metadata: TableMetadata, shown: str) -> Unreadable:
    return Unreadable(
        metadata.address, f"the catalog shows {shown}, which is not in this file: the file is not the whole table"
    )
