"""A made-up fourth store: its package and one line in `storage.kinds` are all it takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_PACKAGE = {
    "__init__.py": '"""A made-up store."""\n',
    "settings.py": """
from dataclasses import dataclass

from lakesweep.settings.values import Group


@dataclass(frozen=True)
class TapeOptions:
    drives: int = 1


class TapeSettings(Group):
    '''`[storage.tape]`: made up.'''

    drives: int = 1
    '''How many.'''

    def options(self):
        return TapeOptions(drives=self.drives)

    @property
    def identity(self):
        return str(self.drives)
""",
    "backend.py": """
from lakesweep.storage.memory import MemoryDeleter, MemoryMover, MemoryRules, MemoryStorage, MemoryWriter
from lakesweep.storage.tape.settings import TapeOptions


def storage(spec):
    print("drives:", spec.options(TapeOptions).drives)
    return MemoryStorage()


def deleter(spec, gate):
    return MemoryDeleter()


def mover(spec, gate):
    return MemoryMover()


def rules(spec):
    return MemoryRules()


def writer(spec):
    return MemoryWriter()


async def credentials(spec):
    return None
""",
}
_LINE = """    StoreKind(
        name="tape", scheme="tape", about="Tapes.", backend="lakesweep.storage.tape.backend", settings=TapeSettings
    ),
)
"""
_PROGRAM = """
import asyncio, sys
from pathlib import Path
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import SystemClock
from lakesweep.model.location import Location
from lakesweep.settings.load import load
from lakesweep.storage.registry import Backend
from lakesweep.storage.tape import backend
from tests.docs import settings_page

settings = load(Path(sys.argv[1]))
adapters = Adapters(settings, SystemClock())
place = Location.parse("tape://library/x")


async def main():
    writer = adapters.writer("acme", Location.parse("tape://library"))
    await writer.put(place, b"kept", create_only=True)
    print((await adapters.storage("acme").read(place)).decode())
    await adapters.aclose()


asyncio.run(main())
assert "[storage.tape]" in settings_page.page()
sides = {name for name in vars(Backend) if not name.startswith("_")}
assert {"storage", "deleter", "mover", "rules", "writer"} <= sides
assert all(callable(getattr(backend, side)) for side in sides), sides
"""


def test_a_fourth_store_is_a_package_and_a_line(tmp_path):
    original = Path(__file__).parents[3] / "service" / "lakesweep"
    service = tmp_path / "service" / "lakesweep"
    _linked(original, service)
    package = service / "storage" / "tape"
    package.mkdir()
    for name, text in _PACKAGE.items():
        (package / name).write_text(text)
    kinds = service / "storage" / "kinds.py"
    text = kinds.read_text()
    kinds.unlink()
    imported = text.replace("\n\n\nclass", "\nfrom lakesweep.storage.tape.settings import TapeSettings\n\n\nclass", 1)
    kinds.write_text(re.sub(r"(KINDS: .*?)\n\)\n", r"\1\n" + _LINE, imported, flags=re.DOTALL))
    settings = tmp_path / "lakesweep.toml"
    settings.write_text('[storage.tape]\ndrives = 7\n[[tenants]]\nid = "acme"\nroot = "tape://library"\n')
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(settings)],
        env={"PYTHONPATH": f"{tmp_path / 'service'}:{original.parents[1]}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["drives: 7", "kept"], done.stderr
    changed = [path for path in service.rglob("*.py") if not path.is_symlink()]
    assert sorted(path.relative_to(service).as_posix() for path in changed) == [
        "storage/kinds.py",
        *(f"storage/tape/{name}" for name in sorted(_PACKAGE)),
    ]


def _linked(original: Path, copy: Path) -> None:
    """Directories anew, files as links, so that a file that is no link was touched."""
    for path in sorted(original.rglob("*")):
        target = copy / path.relative_to(original)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif "__pycache__" not in path.parts:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
