"""scripts/venv and scripts/wheel: what they do and print when they cannot succeed."""

import os
import pathlib
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


def run(name, *arguments, **environment):
    return subprocess.run(
        [SCRIPTS / name, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "environment, why",
    [
        ({"WINDROW_PYTHON": "/bin/false"}, "expected Python 3.10 or later with python3-dev and python3-venv"),
        ({"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_INDEX": "1"}, "pip cannot install python/requirements.txt"),
    ],
)
def test_venv_goes_on_without_python_and_says_why_in_one_line(tmp_path, environment, why):
    done = run("venv", str(tmp_path / "venv"), **environment)
    assert (done.returncode, done.stdout) == (0, "-DWINDROW_PYTHON=OFF\n")
    assert done.stderr.startswith("scripts/venv: goes on without Python: " + why) and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["venv", "wheel", "format"])
def test_unknown_arguments_are_refused_in_one_line(name):
    done = run(name, "--unknown")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"scripts/{name}: unknown argument '--unknown'") and done.stderr.count("\n") == 1
    assert run(name, "--help").stdout.startswith(f"scripts/{name}")
