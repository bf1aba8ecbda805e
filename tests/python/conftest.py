"""What all tests of the Python package share. Start here. Run by CTest, or: pytest tests/python, with the build's
python folder in PYTHONPATH."""

import gc
import os
import subprocess
import sys
import textwrap

os.environ["WINDROW_LEAK_WARNINGS"] = "1"  # before the import; a report of leaks at the exit is an error

import pytest

import windrow


@pytest.fixture
def engine():
    with windrow.Engine(workers=2) as made:
        yield made
        made.wait_all()


@pytest.fixture(params=["pool", "serial", "per_device", "chaos"])
def any_engine(request):
    with windrow.Engine(request.param, workers=2) as made:
        yield made
        made.wait_all()


@pytest.fixture(params=["pool", "serial"])
def any_policy(request):
    with windrow.Engine(request.param, workers=2) as made:
        yield made
        made.wait_all()


@pytest.fixture(autouse=True)
def no_garbage():
    """Collects the garbage of a test before the next test begins."""
    yield
    gc.collect()


@pytest.fixture
def run_python(tmp_path):
    """Runs a program in a process of its own. By default, it must exit with status 0 and write nothing to stderr."""

    def run(code, *, status=0, stderr="", timeout=30, before=(), arguments=(), **environment):
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(code))
        of_forks = "ignore:This process"  # Python 3.12 and later warn of forks while other threads exist
        done = subprocess.run(
            [*before, sys.executable, "-X", "faulthandler", "-W", of_forks, str(program), *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        told = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == status, told
        assert done.stderr == "" if stderr == "" else stderr in done.stderr, told
        assert "leaked" not in done.stderr, told
        return done.stdout

    return run
