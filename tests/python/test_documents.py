"""docs/python.md: who types the snippets of a section, in order, has its program, which runs as an example."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SECTIONS = re.split(r"^## ", (ROOT / "docs/python.md").read_text(), flags=re.MULTILINE)[1:]


def title(section):
    return section.partition("\n")[0]


def lines(code):
    return [line for line in code.splitlines() if line.strip()]


PROGRAMS = [section for section in SECTIONS if "```python" in section]


@pytest.mark.parametrize("section", PROGRAMS, ids=title)
def test_the_snippets_of_a_section_are_its_program(section):
    (path,) = re.findall(r"^The program is `(examples/python/\w+\.py)`", section, flags=re.MULTILINE)
    program = (ROOT / path).read_text()
    code = re.fullmatch(r'""".*?"""\n(.*)', program, flags=re.DOTALL)
    snippets = re.findall(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    assert lines("\n".join(snippets)) == lines(code[1])


def test_all_sections_are_programs_but_the_last_one():
    assert [title(section) for section in SECTIONS if section not in PROGRAMS] == [title(SECTIONS[-1])]
    assert len(PROGRAMS) == 7


def test_programs_run_as_examples():
    tests = (ROOT / "examples/CMakeLists.txt").read_text()
    for path in (ROOT / "examples/python").glob("*.py"):
        if path.stem != "serving":  # which test_serving.py runs
            assert f"windrow_python_example({path.stem} " in tests
