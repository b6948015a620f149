"""What the operator, the sensor, the button, the op and the check make of an outcome, where neither is installed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.builders import stand_ins
from tests.builders.admin import NOON, ORDERS, RUN_ID, SmallService, served
from tests.builders.small_lake import LocalLake, to_toml

from lakesweep.integrations.client import LakesweepFailed
from lakesweep.model.errors import Refused


@pytest.fixture(params=[3, 2])
def airflow(request):
    with stand_ins.integration("airflow", stand_ins.AIRFLOW[request.param]) as module:
        yield module


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    lake.add("umbrella", ["two"], ceilings={"files": 1})
    (tmp_path / "lakesweep.toml").write_text(to_toml(lake.settings(logging={"level": "error"})))
    return lake


@pytest.fixture
def service(tmp_path):
    """Its newest run of ORDERS was refused."""
    service = SmallService(tmp_path)
    asyncio.run(service.seed())
    return service


def test_the_operator_cleans_and_a_refusal_is_a_skip_or_a_failure(airflow, lake, tmp_path):
    config = str(tmp_path / "lakesweep.toml")

    def run(**given):
        pushed = stand_ins.Pushed()
        task = airflow.LakesweepOperator(task_id="clean", execute=True, config=config, **given)
        return pushed, lambda: task.execute(pushed.context)

    pushed, execute = run(targets="acme/d/one")
    assert [(one["outcome"], one["files"]) for one in execute()] == [("done", 3)]
    assert not pushed
    assert not lake.orphans_left("acme/d/one")
    for given, error in (({}, stand_ins.Skip), ({"on_refused": "fail"}, stand_ins.Fail)):
        pushed, execute = run(targets=["acme", "umbrella"], **given)
        with pytest.raises(error, match=r"umbrella/d/two: refused.*ceilings\.files"):
            execute()
        assert "ceilings.files" in pushed["lakesweep_refused"]
        assert [one["outcome"] for one in pushed["return_value"]] == ["done", "refused"]
    with pytest.raises(LakesweepFailed, match="did you mean 'acme'"):
        run(targets="acmee")[1]()
    for slip in ("failed", "Skip", None):
        with pytest.raises(ValueError, match='neither "skip" nor "fail"'):
            run(targets="umbrella", on_refused=slip)
    lake.check_live()


def test_the_button_opens_the_run_that_needs_a_person(airflow, service):
    with served(service) as address:
        pushed = stand_ins.Pushed()
        sensor = airflow.LakesweepSensor(task_id="wait", table=ORDERS.label, api=address, on_refused="skip")
        (button,) = sensor.operator_extra_links
        assert button.get_link(sensor, ti_key=None) == ""
        with pytest.raises(stand_ins.Skip):
            sensor.poke(pushed.context)
        assert button.get_link(sensor, ti_key=None) == f"{address}/#{RUN_ID}" == pushed[button.xcom_key]
        assert "too many" in pushed["lakesweep_refused"]
    assert "token" in sensor.template_fields  # so that a connection can hold it
    assert set(sensor.template_fields) <= set(vars(sensor))


def test_the_sensor_waits_for_a_run_that_began_late_enough(airflow, service):
    with served(service) as address:

        def poke(**given):
            sensor = airflow.LakesweepSensor(task_id="wait", **{"table": ORDERS.label, "api": address, **given})
            return sensor.poke(stand_ins.Pushed().context)

        with pytest.raises(stand_ins.Fail, match="too many"):
            poke(after=str(NOON))
        assert poke(after="2026-03-01 12:00:01") is False  # without a zone it is UTC
        assert poke(table="acme/prod/never_run") is False


def test_a_table_that_the_service_is_busy_with_is_refused_not_failed(airflow, service, monkeypatch):
    async def busy(table, **_):
        raise Refused("busy", f"{table} is already being worked on")

    monkeypatch.setattr(service, "start_run", busy)
    with served(service) as address:
        task = airflow.LakesweepOperator(task_id="clean", targets=ORDERS.label, api=address)
        with pytest.raises(stand_ins.Skip, match="already being worked on"):
            task.execute(stand_ins.Pushed().context)


def test_dagsters_op_and_check_distinguish_a_refusal(lake, tmp_path):
    config, logged = str(tmp_path / "lakesweep.toml"), []
    names = {
        "Failure": stand_ins.Fail,
        "Out": lambda kind: kind,
        "AssetCheckResult": SimpleNamespace,
        "op": lambda **_: lambda made: made,
        "asset_check": lambda **_: lambda made: made,
    }
    log = SimpleNamespace(info=lambda text: None, warning=lambda text, *words: logged.append(text % words))
    with stand_ins.integration("dagster", {"dagster": names}) as dagster:

        def op(**given):
            return dagster.lakesweep_op("clean", execute=True, config=config, **given)(SimpleNamespace(log=log))

        def check(target, **given):
            return dagster.orphan_check(asset=None, target=target, config=config, **given)()

        assert [check("acme/d/one").passed, check("acme/d/one", max_bytes=10**9).passed] == [False, True]
        refused = check("umbrella/d/two", max_bytes=10**9)
        assert not refused.passed
        assert "ceilings.files" in refused.description
        assert [one["outcome"] for one in op(targets=["acme", "umbrella"])] == ["done", "refused"]
        assert "ceilings.files" in logged[0]
        assert check("acme/d/one").passed
        with pytest.raises(stand_ins.Fail, match=r"ceilings\.files"):
            op(targets=["umbrella"], on_refused="fail")
        with pytest.raises(ValueError, match='neither "skip" nor "fail"'):
            op(targets=["umbrella"], on_refused="failed")
    lake.check_live()
