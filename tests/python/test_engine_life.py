"""Engines at the end of a program, at interrupts, and in other interpreters: each test is a program of its own."""

import os
import shutil
import struct
import time

import pytest
from beginnings import START

import windrow

# ---- the import ----


def test_the_import_brings_no_large_package(run_python):
    run_python("""
        import sys
        import windrow
        assert not {"numpy", "torch", "asyncio", "tqdm", "IPython", "importlib.metadata"} & set(sys.modules)
    """)


def test_the_module_needs_little_of_the_static_thread_local_storage():
    """If other modules have used up glibc's 1,664 bytes of this storage, the import fails."""
    with open(windrow._windrow.__file__, "rb") as module:
        header = module.read(64)
        (table,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
        module.seek(table)
        segments = [struct.unpack("<IIQQQQQQ", module.read(size)[:56]) for _ in range(count)]
    thread_local = 7
    assert sum(bytes for kind, _, _, _, _, _, bytes, _ in segments if kind == thread_local) <= 1024


def test_a_subinterpreter_is_refused_in_one_line(run_python):
    told = run_python("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import windrow
        code = '''if True:
            try:
                import windrow
            except ImportError as error:
                print("refused:", error, flush=True)
        '''
        interpreters.run_string(interpreters.create(), code)
    """)
    assert told.startswith("refused: ") and "interpreter" in told and told.count("\n") == 1


# ---- the end of a program ----


@pytest.mark.parametrize("policy", ["pool", "serial", "per_device", "chaos"])
def test_pending_ops_finish_after_the_program(run_python, policy):
    told = run_python(
        START
        + """
def op(i):
    time.sleep(0.01)
    print(i, flush=True)
for i in range(5):
    engine.push(lambda i=i: op(i), mutate=x)
""",
        WINDROW_POLICY=policy,
    )
    assert told == "0\n1\n2\n3\n4\n"


def test_ops_that_push_finish_after_the_program(run_python):
    told = run_python(
        START
        + """
def op(n):
    if n == 0:
        print("end")
    else:
        engine.push(lambda: op(n - 1), mutate=x)
engine.push(lambda: op(2000), mutate=x)
"""
    )
    assert told == "end\n"


def test_an_op_that_never_ends_does_not_keep_the_process(run_python):
    begun = time.monotonic()
    told = run_python(
        START
        + """
windrow._PATIENCE_AT_EXIT = 0.2
engine.push(lambda: time.sleep(1000), mutate=x, name="sleeps")
engine.push(lambda: print("never"), mutate=x)
other = windrow.Engine(workers=1)
other.push(lambda: print("ran", flush=True))
print("flushed", end="")
""",
        status=1,
        stderr="windrow: the process ends without ops",
    )
    assert "flushed" in told and "ran" in told and "never" not in told
    assert time.monotonic() - begun < 25


def test_a_second_interrupt_ends_the_wait_for_pending_ops(run_python):
    begun = time.monotonic()
    run_python(
        START
        + """
import signal
engine.push(lambda: time.sleep(1000), mutate=x)
def interrupt():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
""",
        status=1,
        stderr="windrow: the process ends without ops",
    )
    assert time.monotonic() - begun < 25


@pytest.mark.parametrize("how", ["push", "wait", "hold back"])
def test_daemon_threads_do_not_keep_the_process(run_python, how):
    told = run_python(
        START
        + """
def use(how):
    own = windrow.Engine(workers=1, max_pending_ops=2)
    y = own.var()
    while True:
        if how == "push":
            engine.push(lambda: None, mutate=x)
        elif how == "hold back":
            own.push(lambda: time.sleep(0.001), mutate=y)
        else:
            own.push(lambda: time.sleep(0.05), mutate=y)
            own.wait(y)
threading.excepthook = lambda args: os.write(1, f"{args.exc_type.__name__}\\n".encode())
for _ in range(3):
    threading.Thread(target=use, args=sys.argv[1:], daemon=True).start()
time.sleep(0.2)
""",
        arguments=[how],
        WINDROW_LEAK_WARNINGS="",  # such threads end without releasing what they hold
    )
    assert set(told.split()) <= {"MisuseError"}


def test_engines_made_at_the_end_are_refused(run_python):
    told = run_python("""
        import atexit

        def late():
            for call in (windrow.Engine, lambda: windrow.default_engine().var(), lambda: engine.push(lambda: None)):
                try:
                    call()
                except windrow.MisuseError as error:
                    print(type(error).__name__)
        atexit.register(late)  # runs after that of windrow
        import windrow
        engine = windrow.Engine()
    """)
    assert told == "MisuseError\n" * 3


@pytest.mark.parametrize("how", ["sys.exit(7)", "os._exit(7)", "raise SystemExit(7)"])
def test_exits_keep_their_status(run_python, how):
    run_python(START + f"engine.push(lambda: time.sleep(0.05), mutate=x)\n{how}\n", status=7)


def test_an_uncaught_error_shows_both_tracebacks(run_python):
    run_python(
        START + "engine.push(lambda: 1 // 0, mutate=x)\nengine.wait(x)\n",
        status=1,
        stderr="The above exception was the direct cause",
    )


def test_a_thread_may_make_use_and_leave_engines(run_python):
    run_python("""
        import threading, windrow
        def use():
            with windrow.Engine(workers=1) as engine:
                x = engine.var()
                for _ in range(50):
                    engine.push(lambda: None, mutate=x)
                engine.wait(x)
            windrow.default_engine().push(lambda: None)
            kept.append(windrow.Engine(workers=1))
            kept[-1].push(lambda: None)
        kept = []
        for _ in range(20):
            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
    """)


def test_threads_get_the_same_default_engine(run_python):
    told = run_python("""
        import sys, threading, windrow
        sys.setswitchinterval(1e-6)
        found, begin = [], threading.Barrier(8)
        def find():
            begin.wait()
            found.append(windrow.default_engine())
        threads = [threading.Thread(target=find) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(found), len(set(map(id, found))))
    """)
    assert told == "8 1\n"


# ---- interrupts ----

INTERRUPTED = (
    START
    + """
import signal
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
go = threading.Event()
"""
)


@pytest.mark.parametrize(
    "call", ["engine.wait(x)", "engine.wait_all()", "engine.close()", "engine.wait(x, timeout=25)"]
)
def test_an_interrupt_ends_a_wait_and_the_engine_goes_on(run_python, call):
    run_python(
        INTERRUPTED
        + f"""
engine.push(lambda: go.wait(30), mutate=x)
begun = time.monotonic()
try:
    {call}
    sys.exit("not interrupted")
except KeyboardInterrupt:
    assert 0.2 < time.monotonic() - begun < 25
go.set()
engine.push(lambda: None, mutate=x)
assert engine.wait(x)
engine.close()
"""
    )


def test_a_signal_handler_may_use_the_engine(run_python):
    told = run_python(
        INTERRUPTED
        + """
def handle(*_):
    y = engine.var()
    engine.push(lambda: print("handled", flush=True), overwrite=y)
    engine.wait(y)
    go.set()
signal.signal(signal.SIGINT, handle)
engine.push(lambda: go.wait(30), mutate=x)
engine.wait(x)
"""
    )
    assert told == "handled\n"


# ---- one processor ----


@pytest.mark.skipif(shutil.which("taskset") is None, reason="there is no taskset")
def test_one_processor_is_enough(run_python):
    told = run_python(
        """
        import threading, windrow
        with windrow.Engine() as engine:
            x, ran = engine.var(), []
            def push():
                for i in range(500):
                    engine.push(lambda: ran.append(1), commute=x)
                    if i % 50 == 0:
                        engine.wait(x)
            threads = [threading.Thread(target=push) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            engine.wait_all()
            print(engine.workers, len(ran))
        """,
        before=["taskset", "-c", str(min(os.sched_getaffinity(0)))],
    )
    assert told == "1 2000\n"
