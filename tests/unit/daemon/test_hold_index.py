"""Which tables are held: the index says the same as matching every hold against every table."""

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from lakesweep.daemon import holds, targets
from lakesweep.daemon.holds import HoldIndex
from lakesweep.ports.state import Hold

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SEGMENT = st.text("ab*?[]!-/", min_size=1, max_size=4)


def hold(scope):
    return Hold(scope=scope, since=NOON, by="a test")


@given(
    scopes=st.lists(st.lists(SEGMENT, min_size=1, max_size=3).map("/".join), max_size=6),
    label=st.lists(st.text("ab*[]", min_size=1, max_size=3), min_size=3, max_size=3).map("/".join),
)
@example(scopes=["[[]"], label="[[]/a/b")
@example(scopes=["a/b/c/"], label="a/b/c")
def test_law_the_index_covers_what_any_single_hold_covers(scopes, label):
    held = HoldIndex(hold(scope) for scope in scopes).covering(label)
    assert (held is not None) == any(targets.covers(scope, label) for scope in scopes)
    assert held is None or targets.covers(held.scope, label)


def test_many_holds_of_one_tenant_cost_another_tenant_nothing(monkeypatch):
    index = HoldIndex([hold(f"acme/prod/t{number}*") for number in range(2000)])
    monkeypatch.setattr(holds, "_compiled", _nothing_is_matched)
    assert index.covering("globex/prod/t1") is None


def test_a_pattern_is_compiled_once():
    index = HoldIndex([hold("acme/compiled-once-*/orders")])
    before = holds._compiled.cache_info().misses
    for _ in range(1000):
        assert index.covering("acme/compiled-once-1/orders")
    assert holds._compiled.cache_info().misses == before + 1


def _nothing_is_matched(scope):
    raise AssertionError(scope)
