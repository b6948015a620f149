"""What the service keeps for itself is nobody else's to read."""

import os
import stat
from pathlib import Path

from structlog.testing import capture_logs
from tests.builders.small_lake import LocalLake

from lakesweep.cleanup import private_files
from lakesweep.daemon.app import App
from lakesweep.settings.schema import Settings


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_nobody_else_reads_state_plans_or_audit(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    data_dir = tmp_path / "service data"
    before = os.umask(0o022)
    try:
        settings = lake.settings(service={"data_dir": str(data_dir)}, state={"url": f"sqlite:///{data_dir}/state.db"})
        async with App.open(Settings.model_validate(settings)) as app:
            (work,) = await app.resolve("acme/d/one")
            assert (await app.run(work, execute=True)).outcome == "done"
    finally:
        os.umask(before)
    assert (mode(data_dir), mode(data_dir / "artifacts")) == (0o700, 0o700)
    assert mode(data_dir / "state.db") == 0o600
    log = lake.directory("acme/d/one") / "_delta_log"
    assert all(mode(file) & 0o044 for file in log.iterdir())  # the table is for other programs too


def test_a_directory_that_anybody_may_write_to_is_reported(tmp_path):
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o777)
    with capture_logs() as logs:
        private_files.make_directory(path)
    assert [(line["event"], line["hint"]) for line in logs] == [("directory_open_to_others", f"chmod 700 {path}")]
