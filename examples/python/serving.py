"""A server of a trained model. The requests that come while a minibatch is computed are the next minibatch.

windrow train listops --save run
python serving.py run 8080
curl --data '[MAX 2 9 [MIN 4 7 ] ]' localhost:8080

Without arguments, it serves a model that was not trained, to itself.
"""

import queue
import sys
import threading
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import windrow

model = windrow.load_model(sys.argv[1]) if len(sys.argv) > 1 else windrow.make_model("listops", samples=1, hidden=16)
waiting: "queue.SimpleQueue[tuple[str, Future[str]]]" = queue.SimpleQueue()


def predict(texts: "list[str]") -> "list[str]":
    try:
        return [str(prediction.label and prediction.label.name) for prediction in model.predict(texts)]
    except windrow.DataError as error:  # a text that cannot be read does not fail the others
        return [str(error)] if len(texts) == 1 else [predict([text])[0] for text in texts]


def compute() -> None:
    while True:
        batch = [waiting.get()]
        while len(batch) < 64 and not waiting.empty():
            batch.append(waiting.get())
        for (_, reply), label in zip(batch, predict([text for text, _ in batch])):
            reply.set_result(label)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        reply: "Future[str]" = Future()
        waiting.put((self.rfile.read(int(self.headers["Content-Length"])).decode(), reply))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{reply.result()}\n".encode())

    def log_message(self, *_: object) -> None:
        pass


threading.Thread(target=compute, daemon=True).start()
server = ThreadingHTTPServer(("localhost", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
if len(sys.argv) > 1:
    server.serve_forever()


def ask(text: str) -> str:
    reply: bytes = urllib.request.urlopen(f"http://localhost:{server.server_port}", text.encode()).read()
    return reply.decode().strip()


threading.Thread(target=server.serve_forever, daemon=True).start()
with ThreadPoolExecutor(8) as clients:
    answers = list(clients.map(ask, ["[MAX 2 9 [MIN 4 7 ] ]", "[SM 3 4 ]", "[SM 3"] * 20))
server.shutdown()
print(f"{len(answers)} answers, such as {answers[0]} and: {answers[2]}")
