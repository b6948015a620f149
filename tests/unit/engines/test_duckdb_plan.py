"""The database of one plan."""

import threading

import duckdb
import pytest

from lakesweep.engines.duckdb_plan import Detection


def test_closing_ends_what_still_runs_in_another_thread(tmp_path):
    """DuckDB itself refuses to close under it."""
    detection, begun, ended = Detection(tmp_path, memory_limit="256MB", threads=1), threading.Event(), []

    def work():
        begun.set()
        try:
            detection._all("SELECT count(*) FROM (SELECT DISTINCT hash(i)::VARCHAR FROM range(10000000000) t(i))")
        except duckdb.Error as exc:
            ended.append(exc)

    step = threading.Thread(target=work)
    step.start()
    begun.wait()
    detection.close()
    step.join()
    assert ended
    with pytest.raises(duckdb.ConnectionException):
        detection._db.execute("SELECT 1")
