"""Engines: when the Python objects that ops hold are released, and what many steps leave."""

import gc
import itertools
import sys
import threading
import weakref

import pytest

import windrow


class Held:
    """A function to which a test can have a weak reference."""

    def __init__(self, engine=None):
        self.engine = engine

    def __call__(self):
        pass


def test_functions_are_released_when_their_ops_have_ended(any_policy):
    x = any_policy.var()
    functions = [Held() for _ in range(50)]
    references = [weakref.ref(function) for function in functions]
    for function in functions:
        any_policy.push(function, mutate=x)
    del functions, function
    any_policy.wait(x)
    any_policy.wait_all()
    assert [reference() for reference in references] == [None] * 50


def test_functions_of_ops_that_do_not_run_are_released(engine):
    x, stop = engine.var(), windrow.Stop()
    stop.request()
    reference = weakref.ref(function := Held())
    engine.push(function, overwrite=x, stop=stop)
    del function
    with pytest.raises(windrow.OpError):
        engine.wait(x)
    engine.heal(x)
    engine.wait_all()
    assert reference() is None


def test_functions_of_graphs_are_released_with_them(engine):
    x = engine.var()
    reference = weakref.ref(function := Held())
    graph = engine.capture(lambda: engine.push(function, mutate=x))
    del function
    graph.launch()
    engine.wait_all()
    assert reference() is not None
    del graph
    engine.wait_all()
    gc.collect()
    assert reference() is None


def test_a_graph_whose_functions_refer_to_it_is_collected(engine):
    x = engine.var()
    reference = weakref.ref(function := Held())
    function.graph = engine.capture(lambda: engine.push(function, mutate=x))
    function.graph.launch()
    engine.wait_all()
    del function
    gc.collect()
    engine.wait_all()
    assert reference() is None


def test_a_collection_leaves_functions_of_launches_under_way(engine):
    """If the collector cleared a function that is about to run, its call would crash."""
    x, ran, go = engine.var(), [], threading.Event()
    engine.push(lambda: go.wait(30), mutate=x)

    def make():
        own = []

        def op():
            ran.append(len(own))

        own.append(engine.capture(lambda: engine.push(op, mutate=x)))
        own[0].launch()

    make()
    for _ in range(3):
        gc.collect()
    go.set()
    engine.wait(x)
    assert ran == [1]


def test_errors_do_not_keep_frames_once_the_variable_is_overwritten(engine):
    def fails(held):
        raise ValueError

    x = engine.var()
    reference = weakref.ref(held := Held())
    engine.push(lambda held=held: fails(held), overwrite=x)
    del held
    with pytest.raises(windrow.OpError):
        engine.wait(x)
    engine.push(lambda: None, overwrite=x)
    engine.wait_all()
    gc.collect()
    engine.push(lambda: None, overwrite=x)
    engine.wait_all()
    assert reference() is None


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("policy", ["pool", "serial"])
def test_memory_and_references_stay_the_same_over_many_steps(policy):
    with windrow.Engine(policy, workers=2) as engine:
        x, stop, threads = engine.var("x"), windrow.Stop(), itertools.count()
        graph = engine.capture(lambda: [engine.push(lambda: None, mutate=x) for _ in range(4)])

        def fails():
            raise ValueError(f"number {next(threads)}")

        def steps(count):
            for i in range(count):
                engine.push(lambda: None, mutate=x, name="step", stop=stop, deadline=100)
                if i % 100 == 0:
                    graph.launch()
                    y = engine.var()
                    engine.push(fails, overwrite=y)
                    with pytest.raises(windrow.OpError):
                        engine.wait(y)
                    engine.retire(y)
                    thread = threading.Thread(target=lambda: engine.push(lambda: None, mutate=x))
                    thread.start()
                    thread.join()
            engine.wait(x)
            gc.collect()

        steps(10_000)
        bytes_before, blocks_before = resident_bytes(), sys.getallocatedblocks()
        references_before = sys.getrefcount(None)
        steps(50_000)
        assert sys.getallocatedblocks() - blocks_before < 2000
        assert resident_bytes() - bytes_before < 8 << 20
        if sys.version_info < (3, 12):  # None is immortal since
            assert abs(sys.getrefcount(None) - references_before) < 2000
