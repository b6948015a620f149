"""Settings are read again on demand or when their file changes; a file at fault changes nothing but is told."""

import os
from functools import partial

import pytest
from tests.builders.small_lake import LocalLake, to_toml

from lakesweep.daemon.reload import Reloader
from lakesweep.settings.load import load
from lakesweep.telemetry.metrics import Metrics


class Watched:
    """A settings file with somebody who watches it."""

    def __init__(self, tmp_path):
        self.lake = LocalLake(root=tmp_path)
        self.lake.add("acme", ["one"])
        self.file = tmp_path / "lakesweep.toml"
        self.write()
        self.metrics = Metrics()
        self.applied = []
        self.reloader = Reloader(
            file=self.file,
            load=partial(load, self.file),
            current=load(self.file),
            apply=self.applied.append,
            metrics=self.metrics,
        )

    def write(self, text=None, **sections):
        self.file.write_text(to_toml(self.lake.settings(**sections)) if text is None else text)
        self.age = getattr(self, "age", 0) + 1
        os.utime(self.file, (self.age, self.age))  # file systems with coarse times must not make this test lie

    def counted(self, result):
        return self.metrics.registry.get_sample_value("lakesweep_settings_reloads_total", {"result": result}) or 0

    @property
    def valid(self):
        return self.metrics.registry.get_sample_value("lakesweep_settings_valid")


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


async def test_a_file_that_stays_as_it_is_is_not_read_again(watched):
    await watched.reloader.check()
    assert watched.applied == []
    assert watched.counted("done") == 0


async def test_a_changed_file_is_applied(watched):
    watched.write(daemon={"max_tables": 7})
    await watched.reloader.check()
    (settings,) = watched.applied
    assert settings.daemon.max_tables == 7
    assert (watched.counted("done"), watched.valid) == (1, 1)


async def test_a_file_at_fault_keeps_the_old_settings_and_says_so(watched):
    watched.write(daemon={"max_tables": 0, "leese_seconds": 5})
    await watched.reloader.check()
    assert watched.applied == []
    assert "max_tables" in watched.reloader.problem
    assert "leese_seconds" in watched.reloader.problem
    assert (watched.counted("kept"), watched.valid) == (1, 0)
    await watched.reloader.check()
    assert watched.counted("kept") == 1  # told once
    watched.write(daemon={"max_tables": 3})
    await watched.reloader.check()
    assert watched.reloader.problem is None
    assert watched.valid == 1


@pytest.mark.parametrize("how", ["gone", "not toml"])
async def test_a_file_that_is_gone_or_no_settings_at_all_changes_nothing(watched, how):
    if how == "gone":
        watched.file.unlink()
    else:
        watched.write(text="[[[")
    await watched.reloader.check()
    assert watched.applied == []
    assert str(watched.file) in watched.reloader.problem


async def test_somebody_who_asks_is_answered_though_the_file_is_the_same(watched):
    watched.reloader._requested.set()
    await watched.reloader.check()
    assert watched.counted("done") == 1
    assert watched.applied == []


async def test_what_only_a_restart_changes_waits_and_the_rest_is_applied(watched):
    other = {"metrics": {"listen": "127.0.0.1:1234"}, "service": {"data_dir": str(watched.lake.root / "other")}}
    watched.write(daemon={"max_tables": 7}, **other)
    await watched.reloader.check()
    (settings,) = watched.applied
    assert settings.daemon.max_tables == 7
    assert settings.metrics.listen == "127.0.0.1:0"
    assert str(settings.service.data_dir).endswith("state")


async def test_new_settings_that_do_not_fit_what_was_opened_are_kept_out(watched):
    """The new tenant's root holds the data directory that is in use."""
    watched.lake.tenants["acme"]["root"] = str(watched.lake.root)
    watched.write(service={"data_dir": "/var/lib/somewhere/else"})
    await watched.reloader.check()
    assert watched.applied == []
    assert "data_dir" in watched.reloader.problem


async def test_a_link_that_is_pointed_to_another_file_counts_as_a_change(watched):
    other = watched.file.with_name("other.toml")
    other.write_text(to_toml(watched.lake.settings(daemon={"max_tables": 9})))
    watched.file.unlink()
    watched.file.symlink_to(other)
    await watched.reloader.check()
    assert watched.applied[0].daemon.max_tables == 9
