"""Engines: graphs, cancellation, inspection, and the ends of engines."""

import asyncio
import json
import time
import warnings

import pytest
from beginnings import Gate

import windrow


# ---- graphs ----


def test_a_graph_runs_at_each_launch(any_engine):
    x, ran = any_engine.var(), []
    graph = any_engine.capture(
        lambda: [any_engine.push(lambda i=i: ran.append(i), mutate=x, name=f"op{i}") for i in range(3)], name="three"
    )
    assert ran == [] and len(graph) == 3
    for _ in range(4):
        graph.launch()
    any_engine.wait(x)
    assert ran == [0, 1, 2] * 4
    graph.append(lambda: any_engine.push(lambda: ran.append("last"), mutate=x))
    graph.launch()
    any_engine.wait(x)
    assert ran[-4:] == [0, 1, 2, "last"]
    assert "digraph" in graph.dot() and "op1" in graph.dot()


def test_a_capture_that_raises_keeps_nothing(engine):
    def body():
        engine.push(lambda: None)
        raise KeyError("in the body")

    with pytest.raises(KeyError, match="in the body"):
        engine.capture(body)
    graph = engine.capture(lambda: None)
    with pytest.raises(KeyError):
        graph.append(body)
    assert len(graph) == 0
    with pytest.raises(windrow.MisuseError, match="inside a capture"):
        engine.capture(engine.wait)


def test_errors_of_graphs_name_the_line_of_the_push(engine):
    x = engine.var()
    graph = engine.capture(lambda: engine.push(lambda: [][0], mutate=x, name="indexes"))
    graph.launch()
    with pytest.raises(windrow.OpError, match=r"op 'indexes' .*test_engine_use\.py:\d+.*IndexError") as raised:
        engine.wait(x)
    assert isinstance(raised.value.__cause__, IndexError)
    engine.heal(x)


# ---- cancellation ----


def test_stop_cancels_ops_that_have_not_begun(engine):
    x, y, stop, ran = engine.var("x"), engine.var("y"), windrow.Stop(), []
    gate = Gate(engine, overwrite=x)
    engine.push(lambda: ran.append("stopped"), read=x, mutate=y, stop=stop)
    engine.push(lambda: ran.append("skipped"), mutate=y)
    engine.push(lambda: ran.append("always"), mutate=y, stop=stop, run_always=True)
    assert not stop.requested
    stop.request()
    assert stop.requested
    gate.open()
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(y)
    assert isinstance(raised.value.__cause__, windrow.Cancelled)
    assert [failure.kind for failure in raised.value.failures] == ["cancelled"]
    assert ran == ["always"]
    assert engine.stats().cancelled == 1
    engine.heal(y)


def test_an_op_may_raise_cancelled(engine):
    def gives_up():
        raise windrow.Cancelled("enough")

    x = engine.var()
    engine.push(gives_up, overwrite=x)
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(x)
    assert isinstance(raised.value.__cause__, windrow.Cancelled) and "was cancelled: enough" in str(raised.value)
    assert raised.value.failures[0].kind == "cancelled" and engine.stats().cancelled == 1
    engine.heal(raised.value)


def test_an_op_whose_deadline_passes_fails(engine):
    x, y, ran = engine.var(), engine.var(), []
    gate = Gate(engine, overwrite=x)
    engine.push(lambda: ran.append(1), read=x, overwrite=y, deadline=0.01)
    engine.push(lambda: ran.append(2), read=x, deadline=100)
    time.sleep(0.03)
    gate.open()
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(y)
    assert isinstance(raised.value.__cause__, windrow.DeadlineError)
    assert isinstance(raised.value.__cause__, TimeoutError)
    engine.wait(mutate=x)
    assert ran == [2]
    engine.heal(y)


# ---- inspection ----


def test_describe_pending_names_ops_lines_and_variables(engine):
    x = engine.var("the variable")
    gate = Gate(engine, overwrite=x)
    gate.begun.wait(30)
    engine.push(lambda: None, read=x, name="waits")
    text = engine.describe_pending()
    assert "gate" in text and "waits" in text and "the variable" in text and "test_engine_use.py" in text
    gate.open()


def test_traces_are_saved_and_summed_up(engine, tmp_path):
    x = engine.var("x")
    path = tmp_path / "trace.json"
    with engine.trace(str(path)) as trace:
        for _ in range(3):
            engine.push(lambda: time.sleep(0.001), mutate=x, name="sleeps")
        engine.wait(x)
    events = json.loads(path.read_text())
    assert "sleeps" in json.dumps(events)
    assert "sleeps" in trace.summary() and "3" in trace.summary()
    trace.save(str(tmp_path / "again.json"))
    assert (tmp_path / "again.json").exists()


def test_statistics_and_versions(engine):
    x = engine.var()
    before = engine.version(x)
    for _ in range(5):
        engine.push(lambda: None, mutate=x)
    engine.push(lambda: None, read=x)
    engine.wait_all()
    stats = engine.stats()
    assert engine.version(x) == before + 5
    assert (stats.pushed, stats.pending, stats.failed) == (6, 0, 0)
    assert engine.workers == 2


def test_variables_are_values(engine):
    x, y = engine.var("x"), engine.var("y")
    assert x == x and x != y and x != 1 and not x == "x" and x is not None
    assert len({x, y, x}) == 2 and bool(x)


# ---- ends ----


def test_a_block_that_ends_while_ops_are_pending_warns():
    with pytest.warns(RuntimeWarning, match="1 ops were pending") as warned:
        with windrow.Engine(workers=1) as engine:
            engine.push(lambda: time.sleep(0.1))
    assert warned[0].filename == __file__
    assert engine.closed


def test_a_block_that_ends_after_a_wait_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with windrow.Engine() as engine:
            engine.push(lambda: None)
            engine.wait_all()
        engine.close()
        with pytest.raises(KeyError):
            with windrow.Engine() as engine:
                engine.push(lambda: time.sleep(0.05))
                raise KeyError


def test_an_engine_that_nobody_closes_warns():
    engine = windrow.Engine(workers=1)
    kept = [windrow._windrow.Engine.close.__get__(engine)]
    with pytest.warns(ResourceWarning, match="not closed"):
        engine.__del__()
    kept[0]()


def test_closed_engines_refuse_calls():
    engine = windrow.Engine(workers=1)
    x = engine.var()
    graph = engine.capture(lambda: engine.push(lambda: None, mutate=x))
    assert "1 workers" in repr(engine)
    engine.close()
    assert "closed" in repr(engine)
    for call in (
        lambda: engine.push(lambda: None),
        lambda: engine.wait(x),
        engine.wait_all,
        engine.var,
        engine.stats,
        engine.describe_pending,
        lambda: engine.capture(lambda: None),
        lambda: engine.version(x),
        lambda: asyncio.run(engine.ready(x)),
        graph.launch,
        graph.dot,
    ):
        with pytest.raises(windrow.MisuseError):
            call()


def test_an_op_may_use_an_engine_of_its_own(engine):
    result = []

    def op():
        with windrow.Engine(workers=1) as own:
            x = own.var()
            own.push(lambda: result.append(1), mutate=x)
            own.wait(x)

    engine.push(op)
    engine.wait_all()
    assert result == [1]


def test_an_op_cannot_close_its_engine(engine):
    x = engine.var()
    engine.push(engine.close, overwrite=x)
    with pytest.raises(windrow.OpError, match="inside an op of this engine"):
        engine.wait(x)
    engine.heal(x)


def test_failures_that_nobody_waited_for_are_logged(capfd):
    with windrow.Engine(workers=1) as engine:
        x, y = engine.var(), engine.var()
        engine.push(lambda: {}["seen"], overwrite=x, name="seen")
        engine.push(lambda: {}["unseen"], overwrite=y, name="unseen")
        with pytest.raises(windrow.OpError):
            engine.wait(x)
        while engine.stats().pending:
            time.sleep(0.001)
    told = capfd.readouterr().err
    assert "nobody waited" in told and "op 'unseen'" in told and "op 'seen'" not in told


def test_the_default_engine_is_one_engine():
    engine = windrow.default_engine()
    assert type(engine) is windrow.Engine and windrow.default_engine() is engine
    x, ran = engine.var(), []
    engine.push(lambda: ran.append(1), overwrite=x)
    assert engine.wait(x) and ran == [1]
