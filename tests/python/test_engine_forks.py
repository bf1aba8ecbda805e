"""Engines in forked children and in processes of multiprocessing: each test is a program of its own."""

import pytest
from beginnings import START


def test_a_forked_child_goes_on_with_the_engine(run_python):
    told = run_python(
        START
        + """
values = []
for i in range(100):
    engine.push(lambda i=i: values.append(i), mutate=x)
child = os.fork()
engine.push(lambda: values.append("child" if child == 0 else "parent"), mutate=x)
engine.wait(x)
assert values[:100] == list(range(100)), values
if child == 0:
    print(values[100:], flush=True)
else:
    assert os.waitpid(child, 0)[1] == 0
    print(values[100:], flush=True)
"""
    )
    assert told == "['child']\n['parent']\n"


def test_a_fork_while_other_threads_push(run_python):
    run_python(
        START
        + """
stop = threading.Event()
def push():
    while not stop.is_set():
        engine.push(lambda: None, mutate=x)
threads = [threading.Thread(target=push) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        y = engine.var()
        engine.push(lambda: None, mutate=y)
        engine.wait(y)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
"""
    )


def test_a_fork_while_an_op_never_ends_leaves_a_child_that_says_so(run_python):
    told = run_python(
        START
        + """
windrow._PATIENCE_BEFORE_FORK = 0.2
go = threading.Event()
engine.push(lambda: go.wait(60), mutate=x)
child = os.fork()
if child == 0:
    for call in (lambda: engine.push(lambda: None), lambda: engine.wait(x), engine.wait_all):
        try:
            call()
        except windrow.MisuseError as error:
            print("copied by fork()" in str(error), flush=True)
    with windrow.Engine() as own:
        own.push(lambda: print("own", flush=True))
        own.wait_all()
    engine.close()
else:
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    engine.wait(x)
""",
        WINDROW_LEAK_WARNINGS="",  # the child cannot release what the lost op holds
    )
    assert told == "True\nTrue\nTrue\nown\n"


def test_a_fork_inside_an_op(run_python):
    run_python(
        START
        + """
def op():
    child = os.fork()
    if child == 0:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
engine.push(op, mutate=x)
engine.wait(x)
"""
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(run_python, method):
    told = run_python(
        """
        import multiprocessing, sys, windrow

        def square(n):
            with windrow.Engine(workers=1) as engine:
                x, result = engine.var(), []
                engine.push(lambda: result.append(n * n), overwrite=x)
                engine.wait(x)
            return result[0]

        def fails(n):
            with windrow.Engine(workers=1) as engine:
                x = engine.var()
                engine.push(lambda: [][n], overwrite=x)
                engine.wait(x)

        if __name__ == "__main__":
            with windrow.Engine(workers=2) as engine:
                x = engine.var()
                engine.push(lambda: None, overwrite=x)
                with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
                    print(pool.map(square, range(5)))
                    try:
                        pool.map(fails, [1])
                    except windrow.OpError as error:
                        print(error.failures[0].kind, type(error.__cause__).__name__)
                engine.wait_all()
        """,
        arguments=[method],
        timeout=60,
    )
    assert told.startswith("[0, 1, 4, 9, 16]\nthrew ")


def test_a_child_process_that_runs_another_program(run_python):
    run_python(
        START
        + """
import subprocess
windrow._PATIENCE_BEFORE_FORK = 60
go = threading.Event()
engine.push(lambda: go.wait(30), mutate=x)
begun = time.monotonic()
assert subprocess.run(["true"]).returncode == 0
assert time.monotonic() - begun < 25  # no wait for the op
go.set()
"""
    )
