"""What the settings know by name: datasets, and the tables that have something of their own. No catalog is queried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakesweep.cli import exit_codes, screen
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import SettingsError, UnknownTable
from lakesweep.model.table import FormatName

if TYPE_CHECKING:
    from lakesweep.settings.schema import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A table, or whatever of a dataset or tenant the settings do not name more narrowly."""

    tenant: str
    dataset: str | None = None
    table: str | None = None
    format: FormatName | None = None

    @property
    def names(self) -> tuple[str, str | None, str | None]:
        return self.tenant, self.dataset, self.table

    @property
    def label(self) -> str:
        return "/".join(name or "*" for name in self.names)

    def is_configured(self, settings: Settings) -> bool:
        """Do the settings name it? A table need not be named to be cleaned."""
        owner = settings.tenant(self.tenant)
        source = owner.dataset(self.dataset) if owner else None
        return self.table is None or (source is not None and source.table(self.table) is not None)


def wanted(settings: Settings, targets: Sequence[str]) -> tuple[list[Scope], ExitCode]:
    """Each scope once, however many targets name it. A target that names none does not keep the others back."""
    found: dict[Scope, None] = {}
    code = ExitCode.DONE
    for target in targets:
        try:
            found |= dict.fromkeys(_named(settings, target))
        except SettingsError as exc:
            screen.complain(exit_codes.sentence(exc))
            code = exit_codes.of_error(exc)
    return list(found), code


def configured(settings: Settings) -> Iterator[Scope]:
    """Everything, in the order of the file."""
    for tenant in settings.tenants:
        if not tenant.datasets:
            yield Scope(tenant=tenant.id)
        for dataset in tenant.datasets:
            for table in (None, *(one.name for one in dataset.tables)):
                yield Scope(tenant=tenant.id, dataset=dataset.id, table=table, format=dataset.format)


def _named(settings: Settings, target: str) -> Iterator[Scope]:
    """Any name in a dataset may be a table's: whether there is one, only the catalog knows."""
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    if targets.as_location(target):
        raise SettingsError(f"{target} is a location: name its table as tenant/dataset/table")
    near = [one for one in configured(settings) if targets.may_match(target, one.tenant, one.dataset or "*")]
    if not near:
        raise UnknownTable(_no_match(settings, target))
    table = "".join(target.split("/", 2)[2:])
    is_pattern = not table or bool(set(table) & set("*?["))
    for scope in near:
        if scope.table is None:
            yield scope if is_pattern else replace(scope, table=table)
        elif targets.covers(target, scope.label):
            yield scope


def _holders(label: str) -> tuple[str, str]:
    """The tenant and the dataset that a table or `tenant/dataset/*` belongs to."""
    tenant, dataset, _ = label.split("/", 2)
    return tenant, f"{tenant}/{dataset}"


def _no_match(settings: Settings, target: str) -> str:
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    if target == "":
        return "an empty target matches no table; use '*' for everything configured"
    known = ", ".join(scope.label for scope in configured(settings) if scope.table is None)
    if not known:
        return f"nothing configured matches {target!r}: name a settings file with --config or LAKESWEEP_CONFIG"
    names = (part for scope in configured(settings) for part in (scope.label, *_holders(scope.label)))
    meant = targets.suggestion(target, names)
    return f"nothing configured matches {target!r}; {meant or f'there is {known}'}"
