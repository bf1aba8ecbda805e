"""A server of a trained model. The requests that come while a minibatch is computed are the next minibatch.

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
waiting: SimpleQueue[tuple[str, Future[str]]] = SimpleQueue()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(errors="replace")
        reply: Future[str] = Future()
        waiting.put((text, reply))
        error = reply.exception()  # waits
        self.send_response(400 if error else 200)
        self.end_headers()
        self.wfile.write(f"{error or reply.result()}\n".encode())


def answer(batch: list[tuple[str, Future[str]]]) -> None:
    try:
        predictions = model.predict([text for text, _ in batch])
    except windrow.DataError as error:  # a text that cannot be read; it does not fail the others
        if len(batch) == 1:
            batch[0][1].set_exception(error)
        else:
            for one in batch:
                answer([one])
    else:
        for prediction, (_, reply) in zip(predictions, batch):
            reply.set_result(str(prediction.label and prediction.label.name))


Thread(target=ThreadingHTTPServer(("localhost", int(sys.argv[2])), Handler).serve_forever, daemon=True).start()
while True:
    batch = [waiting.get()]
    while len(batch) < 64 and not waiting.empty():
        batch.append(waiting.get())
    answer(batch)
