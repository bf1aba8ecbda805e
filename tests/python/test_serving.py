"""examples/python/serving.py, by requests that come at the same time."""

import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

import windrow

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "python" / "serving.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "run"
    windrow.make_model("listops", samples=1, hidden=16).save(folder)
    return folder


@pytest.fixture(scope="module")
def ask(folder):
    with socket.create_server(("localhost", 0)) as found:
        port = found.getsockname()[1]
    server = subprocess.Popen([sys.executable, EXAMPLE, folder, str(port)], stderr=subprocess.DEVNULL)

    def ask(text):
        data = text if isinstance(text, bytes) else text.encode()
        try:
            with urllib.request.urlopen(f"http://localhost:{port}", data, timeout=20) as reply:
                return reply.status, reply.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()

    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("localhost", port)).close()
                break
            except ConnectionRefusedError:
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
        yield ask
    finally:
        server.kill()
        server.wait()


def test_answers_requests_that_come_at_the_same_time(ask, folder):
    texts = [f"[MAX {i % 10} 9 [MIN 4 {i % 7} ] ]" if i % 3 else f"[SM {i % 10} 4 ]" for i in range(60)]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, texts))
    expected = [prediction.label.name for prediction in windrow.load_model(folder).predict(texts)]
    assert answers == [(200, name) for name in expected]


def test_refuses_what_it_cannot_read_and_answers_the_others(ask):
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, ["[SM 3 4 ]", "[SM 3", b"\xff\xfe", "", "[SM 3 4 ]"] * 12))
    for i in range(0, 60, 5):
        assert answers[i] == answers[i + 4] == answers[0] and answers[i][0] == 200
        for status, text in answers[i + 1 : i + 4]:
            assert status == 400 and text.startswith("input 1"), text
