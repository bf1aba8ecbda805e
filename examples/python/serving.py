"""A server for a trained model. Requests that arrive while a minibatch is computed form the next minibatch.

windrow train listops --save run
python serving.py run 8080
curl --data '[MAX 2 9 [MIN 4 7 ] ]' localhost:8080
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread

import windrow

model = windrow.load_model(sys.argv[1])
waiting: SimpleQueue[tuple[str, Future[tuple[int, str]]]] = SimpleQueue()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(errors="replace")
        reply: Future[tuple[int, str]] = Future()
        waiting.put((text, reply))
        status, answer = reply.result()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(f"{answer}\n".encode())


def predict(texts: list[str]) -> list[tuple[int, str]]:
    try:
        return [(200, str(prediction.label and prediction.label.name)) for prediction in model.predict(texts)]
    except windrow.DataError as error:  # a text that cannot be read does not fail the others
        return [(400, str(error))] if len(texts) == 1 else [predict([text])[0] for text in texts]


Thread(target=ThreadingHTTPServer(("localhost", int(sys.argv[2])), Handler).serve_forever, daemon=True).start()
while True:
    batch = [waiting.get()]
    while len(batch) < 64 and not waiting.empty():
        batch.append(waiting.get())
    for (_, reply), answer in zip(batch, predict([text for text, _ in batch])):
        reply.set_result(answer)
