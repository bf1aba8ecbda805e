"""What all tests of the Python package share. Start here. Run by CTest, or: pytest tests/python, with the build's
python folder in PYTHONPATH."""

import gc

import pytest

import windrow


@pytest.fixture
def engine():
    with windrow.Engine(workers=2) as made:
        yield made
        made.wait_all()


@pytest.fixture(autouse=True)
def no_garbage():
    """Ends what a test has left before the next one begins."""
    yield
    gc.collect()
