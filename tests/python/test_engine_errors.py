"""Engines: failures of ops, and wrong arguments."""

import pickle
import sys
import traceback

import hypothesis
import pytest
from hypothesis import strategies

import windrow


def line_here():
    return sys._getframe(1).f_lineno


# ---- failures ----


def fails_deep_inside():
    raise LookupError("deep inside")


def test_an_exception_comes_back_with_its_traceback_and_the_line_of_the_push(engine):
    x, y = engine.var("x"), engine.var("y")
    pushed = line_here() + 1
    engine.push(fails_deep_inside, overwrite=x, name="looks up")
    engine.push(lambda: None, read=x, overwrite=y, name="follows")
    for _ in range(2):  # each wait raises
        with pytest.raises(windrow.OpError) as raised:
            engine.wait(y)
        cause = raised.value.__cause__
        assert type(cause) is LookupError and cause.args == ("deep inside",)
        assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["fails_deep_inside"]
        (failure,) = raised.value.failures
        assert failure.op == "follows" and failure.kind == "skipped"
        assert f"op 'looks up' (pushed at {__file__}:{pushed}) failed: LookupError: deep inside" in failure.text
        assert failure.place == f"{__file__}:{pushed + 1}"
    engine.push(lambda: None, overwrite=x)
    engine.push(lambda: None, overwrite=y)
    assert engine.wait(x, y)


def test_a_line_inside_the_package_is_not_the_users(engine):
    x = engine.var()
    engine._when_ready([x], lambda error: 1 // 0)
    with pytest.raises(windrow.OpError, match="test_engine_errors.py"):
        engine.wait_all()


def test_code_without_a_file_has_lines_too(engine):
    x = engine.var()
    exec(compile("engine.push(lambda: 1 // 0, overwrite=x)", "<cell \udcff 7>", "exec"), {"engine": engine, "x": x})
    exec(compile("\n\nengine.push(lambda: 1 // 0, overwrite=x)", "<cell 8>", "exec"), {"engine": engine, "x": x})
    with pytest.raises(windrow.OpError, match="<cell 8>:3"):
        engine.wait(x)
    engine.heal(x)
    with pytest.raises(windrow.OpError):
        engine.wait_all()  # the first one


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Changes(BaseException):
    pass


@pytest.mark.parametrize("kind", [Unprintable, Changes, KeyboardInterrupt, SystemExit, MemoryError])
def test_any_exception_fails_its_op(any_policy, kind):
    error = kind("x")

    def fails():
        raise error

    x = any_policy.var()
    try:
        any_policy.push(fails, overwrite=x)
    except KeyboardInterrupt:  # with the policy serial, the op runs in its push
        assert kind is KeyboardInterrupt
    with pytest.raises(windrow.OpError) as raised:
        any_policy.wait(x)
    assert raised.value.__cause__ is error
    any_policy.heal(x)


def test_an_error_of_a_wait_inside_an_op_has_both_causes(engine):
    x, y = engine.var("x"), engine.var("y")
    engine.push(fails_deep_inside, overwrite=x, name="inner")
    engine.push(lambda: engine.wait(x), overwrite=y, name="outer")
    with pytest.raises(windrow.OpError, match="op 'outer'.*because op 'inner'.*deep inside") as raised:
        engine.wait(y)
    assert isinstance(raised.value.__cause__, LookupError)
    assert [failure.kind for failure in raised.value.failures] == ["waited"]
    engine.heal(raised.value)
    assert engine.wait(x, y)


def test_heal_takes_variables_and_errors_of_waits(engine):
    for wrong in (1, None, ValueError("no OpError"), "x"):
        with pytest.raises(TypeError, match="heal"):
            engine.heal(wrong)
    x = engine.var()
    engine.push(fails_deep_inside, overwrite=x)
    with pytest.raises(windrow.OpError) as raised:
        engine.wait(x)
    engine.push(lambda: None, overwrite=x)
    engine.wait(x)
    engine.heal(raised.value)  # has nothing to heal
    engine.heal(windrow.OpError("made by hand"))


def test_wait_all_raises_failures_that_no_variable_carries(engine):
    engine.push(fails_deep_inside, name="lost")
    with pytest.raises(windrow.OpError, match="op 'lost'"):
        engine.wait_all()
    assert engine.wait_all()


def test_errors_can_be_pickled_and_caught_by_their_bases():
    error = windrow.OpError("text", [windrow.Failure("op", "a.py:1", "threw", "op failed")])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is windrow.OpError and again.args == error.args and again.failures == error.failures
    for name, base in [
        ("MisuseError", ValueError),
        ("DeadlineError", TimeoutError),
        ("OutOfMemory", MemoryError),
        ("FileError", OSError),
        ("NotFiniteError", ArithmeticError),
        ("WaitCycleError", ValueError),
    ]:
        kind = getattr(windrow, name)
        assert issubclass(kind, base) and issubclass(kind, windrow.Error) and kind.__module__ == "windrow"


# ---- misuse ----


def test_misuse_names_what_is_wrong():
    for arguments, text in [
        ({"policy": "greedy"}, "greedy"),
        ({"workers": 0}, "workers"),
        ({"max_pending_ops": 0}, "max_pending_ops"),
        ({"push_patience": -1}, "push_patience = -1"),
        ({"watchdog": float("nan")}, "watchdog = nan"),
    ]:
        with pytest.raises(windrow.MisuseError, match=text):
            windrow.Engine(**arguments)
    with windrow.Engine() as engine, windrow.Engine() as other:
        x, foreign = engine.var("x"), other.var("foreign")
        with pytest.raises(windrow.MisuseError, match="op 'reads' .* names a variable of another engine"):
            engine.push(lambda: None, read=foreign, name="reads")
        with pytest.raises(windrow.MisuseError):
            engine.wait(foreign)
        with pytest.raises(windrow.MisuseError, match="deadline = -1"):
            engine.push(lambda: None, deadline=-1)
        with pytest.raises(windrow.MisuseError, match="timeout = inf"):
            engine.wait(x, timeout=float("inf"))
        engine.retire(x)
        with pytest.raises(windrow.MisuseError, match="retired"):
            engine.push(lambda: None, read=x)
        assert engine.stats().pushed <= 1  # the retire


class RaisesInIter:
    def __iter__(self):
        raise KeyError("in iter")


class YieldsThenRaises:
    def __iter__(self):
        yield None
        raise KeyError("in next")


class RaisesInVar:
    @property
    def var(self):
        raise KeyError("in var")


def contains_itself():
    items = []
    items.append(items)
    return items


def test_wrong_accesses_are_refused(engine):
    x = engine.var()
    for wrong in (1, "text", b"text", {"key": x}, object(), engine, contains_itself(), [x, 1], windrow.Var, len):
        for kind in ("read", "mutate", "overwrite", "commute"):
            with pytest.raises(TypeError, match="expected a Var, a tensor, or a list of them"):
                engine.push(lambda: None, **{kind: wrong})
        with pytest.raises(TypeError):
            engine.wait(wrong)
    for wrong in (RaisesInIter(), YieldsThenRaises(), RaisesInVar()):
        with pytest.raises(KeyError):
            engine.push(lambda: None, read=wrong)
    assert engine.stats().pushed == 0


def test_wrong_functions_are_refused_or_fail(engine):
    for wrong in (None, 1, "f", [len]):
        with pytest.raises(TypeError):
            engine.push(wrong)
    x = engine.var()
    engine.push(lambda required: None, overwrite=x)
    with pytest.raises(windrow.OpError, match="missing 1 required positional argument"):
        engine.wait(x)
    engine.heal(x)


@pytest.mark.filterwarnings("ignore:nanobind")
def test_objects_that_no_init_has_made_are_refused():
    for kind in (windrow.Engine, windrow.Stop, windrow.Graph, windrow.Var, windrow.EngineStats):
        made = kind.__new__(kind)
        for name in dir(made):
            if name.startswith("__") or name in ("_made", "trace", "ready"):
                continue
            with pytest.raises((TypeError, windrow.Error)):
                attribute = getattr(made, name)
                attribute()
    for kind in (windrow.Graph, windrow.Var, windrow.EngineStats):
        with pytest.raises(TypeError):
            kind()


anything = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text()
    | strategies.binary()
    | strategies.sampled_from([object(), len, windrow.Var, windrow.Engine, Exception, "x", "other", "stop", "call"]),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(), inner, max_size=2),
    max_leaves=4,
)
methods = strategies.sampled_from(
    ["push", "wait", "wait_all", "var", "retire", "heal", "version", "capture", "stats", "describe_pending", "_wait",
     "_when_ready", "_trace_save", "_trace_start", "__init__"]
)  # fmt: skip
keywords = strategies.sampled_from(
    ["read", "mutate", "overwrite", "commute", "name", "priority", "stop", "deadline", "run_always", "timeout", "var",
     "function", "body", "policy", "workers"]
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:nanobind", "ignore:coroutine")
@hypothesis.settings(max_examples=400, deadline=None, derandomize=True, database=None)
@hypothesis.given(
    method=methods,
    arguments=strategies.lists(anything, max_size=3),
    named=strategies.dictionaries(keywords, anything, max_size=3),
)
def test_wrong_arguments_raise_and_break_nothing(fuzzed, method, arguments, named):
    engine, others = fuzzed

    def replace(value):
        return others.get(value, value) if isinstance(value, str) else value

    named = {name: replace(value) for name, value in named.items()}
    if named.get("timeout") is None and method in ("wait", "wait_all", "_wait"):
        named["timeout"] = 0.0
    if method == "_trace_save" and arguments and isinstance(arguments[0], str):
        return  # it may name a file
    try:
        getattr(engine, method)(*map(replace, arguments), **named)
    except (TypeError, OverflowError, UnicodeError, windrow.Error):
        pass


@pytest.fixture(scope="module")
def fuzzed():
    with windrow.Engine(workers=2) as engine, windrow.Engine(workers=1) as other:
        stop = windrow.Stop()
        yield engine, {"x": engine.var("x"), "other": other.var(), "stop": stop, "call": lambda *_: None}
        try:
            engine.wait_all()
        except windrow.OpError:
            pass
