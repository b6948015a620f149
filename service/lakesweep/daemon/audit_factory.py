"""The audit trail, put together: where it is kept, and who set a run off."""

from __future__ import annotations

import getpass
import os
import uuid
from dataclasses import dataclass

from lakesweep import __version__
from lakesweep.audit.chain_writer import ChainWriter
from lakesweep.audit.compact import Packer
from lakesweep.audit.inspect import Inspector
from lakesweep.audit.records import Circumstances
from lakesweep.audit.trail import Trail
from lakesweep.daemon.adapters import Adapters
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore
from lakesweep.ports.storage import Storage
from lakesweep.settings.digest import digest
from lakesweep.settings.schema import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFactory:
    """Opens the trails of all tables for one set of settings."""

    settings: Settings
    adapters: Adapters
    state: StateStore
    clock: Clock
    key: bytes
    """Signs what is written; see `state.installation_key`."""
    worker: str
    """Who writes: host, process and a random part."""

    def open(self, run_id: str, table: TableRef, fencing_token: int, trigger: Trigger | None) -> Trail:
        """One run's part of its table's trail. Without a trigger it is this user's command."""
        return Trail(
            chain=self.chain(table.label, run_id),
            about=Circumstances(
                trigger=trigger or this_user(),
                worker=self.worker,
                fencing_token=fencing_token,
                settings_digest=digest(self.settings),
                version=__version__,
            ),
        )

    def inspector(self) -> Inspector:
        """Reads and checks them."""
        return Inspector(
            artifacts=self.settings.artifacts,
            key=self.key,
            storage=self.adapters.own_storage(),
            state=self.state,
            anchor=self._anchor,
        )

    def packer(self) -> Packer:
        """Packs their old parts."""
        return Packer(
            artifacts=self.settings.artifacts,
            key=self.key,
            storage=self.adapters.own_storage(),
            writer=self.adapters.own_writer(),
            remove=self.adapters.remove_own,
        )

    @property
    def _anchor(self) -> Location | None:
        anchor = self.settings.service.audit_anchor
        return Location.parse(anchor) if anchor else None

    @property
    def place(self) -> Location:
        """Where the trails are."""
        return self.settings.artifacts

    @property
    def own_storage(self) -> Storage:
        """Reads them."""
        return self.adapters.own_storage()

    def new_id(self) -> str:
        """For what is no run of a table."""
        return uuid.uuid4().hex

    def chain(self, table: str, run_id: str) -> ChainWriter:
        """The end of one chain, to write to."""
        return ChainWriter(
            artifacts=self.settings.artifacts,
            table=table,
            run_id=run_id,
            key=self.key,
            storage=self.adapters.own_storage(),
            writer=self.adapters.own_writer(),
            state=self.state,
            clock=self.clock,
            anchor=self._anchor,
        )


def this_user() -> Trigger:
    """Whoever runs this process."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        who = f"uid {os.getuid()}"
    return Trigger(by=TriggeredBy.COMMAND, who=who)
