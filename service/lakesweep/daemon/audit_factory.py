"""The audit trail, put together: where it is kept, and who set a run off."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from functools import cached_property

from lakesweep import __version__
from lakesweep.audit.compact import Packer
from lakesweep.audit.inspect import Inspector
from lakesweep.audit.records import Circumstances
from lakesweep.audit.trail import ChainWriter, Trail
from lakesweep.daemon.adapters import Adapters
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore
from lakesweep.settings.effective import digest
from lakesweep.settings.schema import Settings


@dataclass(frozen=True, kw_only=True)
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

    @cached_property
    def settings_digest(self) -> str:
        """Worked out once: settings never change, and all of them are looked at for it."""
        return digest(self.settings)

    def open(self, run_id: str, table: TableRef, fencing_token: int, trigger: Trigger | None) -> Trail:
        """One run's part of its table's trail. Without a trigger it is this user's command."""
        return Trail(
            chain=self.chain(table.label, run_id),
            about=Circumstances(
                trigger=trigger or this_user(),
                worker=self.worker,
                fencing_token=fencing_token,
                settings_digest=self.settings_digest,
                version=__version__,
            ),
        )

    def inspector(self) -> Inspector:
        return Inspector(
            artifacts=self.settings.artifacts,
            key=self.key,
            storage=self.adapters.own_storage(),
            state=self.state,
            anchor=self._anchor,
        )

    def packer(self) -> Packer:
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

    def chain(self, table: str, run_id: str) -> ChainWriter:
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
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        who = f"uid {os.getuid()}"
    return Trigger(by=TriggeredBy.COMMAND, who=who)
