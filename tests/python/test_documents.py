"""docs/python.md: its snippets, in order, are the programs that it names, and these run as examples."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/python.md").read_text()
PROGRAM = re.compile(r"^The program is `(examples/python/\w+\.py)`", flags=re.MULTILINE)
START, *PARTS = PROGRAM.split(PAGE)  # paths, and the text from each one to the next
PROGRAMS = dict(zip(PARTS[::2], PARTS[1::2]))


def lines(code):
    return [line for line in code.splitlines() if line.strip()]


@pytest.mark.parametrize("path", PROGRAMS)
def test_the_snippets_are_the_program(path):
    code = re.fullmatch(r'""".*?"""\n(.*)', (ROOT / path).read_text(), flags=re.DOTALL)
    snippets = re.findall(r"^```python\n(.*?)^```$", PROGRAMS[path], flags=re.MULTILINE | re.DOTALL)
    assert lines("\n".join(snippets)) == lines(code[1])


def test_all_snippets_are_of_programs():
    assert "```python" not in START
    assert len(PROGRAMS) == 7


def test_programs_run_as_examples():
    tests = (ROOT / "examples/CMakeLists.txt").read_text()
    for path in (ROOT / "examples/python").glob("*.py"):
        if path.stem != "serving":  # which test_serving.py runs
            assert f"windrow_python_example({path.stem} " in tests
