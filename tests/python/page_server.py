"""A server that answers like millrace serve with given contents: for tests of the page, without a model."""

import http.server
import json
import pathlib
import re
import threading
import time
import urllib.parse

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "page" / "assets"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = re.search(r'kPagePolicy =\s*"(.*?)";', (ASSETS.parent / "page.h").read_text(), re.S)[1].replace('"\n    "', "")

ENGINE = {"running": 2, "waiting": 1, "tokens_per_second": 41.5, "step_ms": 12.3, "step_rows": 2,
          "kv": {"blocks": 100, "used": 25, "cached": 10},
          "streams": [{"id": 7, "choice": 0, "client": "<b>ann</b>", "prompt_tokens": 12, "computed_tokens": 12, "generated_tokens": 3}],
          "steps": 9, "requests": 3, "prompt_tokens": 100, "cached_tokens": 50, "generated_tokens": 9, "preemptions": 0}
DATAFLOW = {"choices": [{"op": "linear", "what": "linear", "format": "Q8_0", "layout": "rows", "n": 576, "k": 576, "m": 1, "calls": 30,
                         "kernel": "gemv_sdot", "microseconds": 12.5, "measured": True, "percent_of_roof": 83.2}]}


class Response:
    """A background response: its events, and whether more will come."""

    def __init__(self, number):
        self.id = f"resp_{number}"
        self.events = []
        self.status = "in_progress"
        self.more = threading.Condition()

    def add(self, kind, **fields):
        with self.more:
            self.events.append({"type": kind, "sequence_number": len(self.events), **fields})
            self.more.notify_all()

    def end(self, status):
        with self.more:
            if self.status == "in_progress":
                self.status = status
            self.more.notify_all()

    def json(self):
        return {"id": self.id, "status": self.status, "usage": {"input_tokens": 3, "output_tokens": len(self.events)}}


class PageServer:
    """`answer` is the next answer, in pieces with `pause` seconds between them; `requests` records the requests."""

    def __init__(self):
        self.answer = ["Hello"]
        self.reasoning = []
        self.pause = 0.0
        self.requests = []
        self.models = [{"id": "test-model"}, {"id": "default", "alias_of": "test-model"}]
        self.responses = {}
        self.cancelled = 0
        self.followed = []  # the starting_after of each reader that came back
        self.cut_after = None  # closes the first stream after so many events, as a bad network would
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def reply(self, body, kind, extra=()):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", POLICY)
                for name, value in extra:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                known = {"/v1/models": {"data": outer.models}, "/engine": ENGINE, "/engine/dataflow": DATAFLOW}
                address = urllib.parse.urlsplit(self.path)
                if self.path in known:
                    return self.reply(json.dumps(known[self.path]).encode(), "application/json")
                if address.path.startswith("/v1/responses/"):
                    response = outer.responses.get(address.path.split("/")[3])
                    if response is None:
                        return self.send_error(404)
                    query = dict(urllib.parse.parse_qsl(address.query))
                    if query.get("stream") != "true":
                        return self.reply(json.dumps(response.json()).encode(), "application/json")
                    outer.followed.append(int(query.get("starting_after", -1)))
                    return self.stream(response, outer.followed[-1] + 1)
                file = ASSETS / ("index.html" if self.path == "/" else self.path.removeprefix("/page/"))
                if not file.is_file():
                    return self.send_error(404)
                return self.reply(file.read_bytes(), TYPES[file.suffix])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("/cancel"):
                    response = outer.responses[self.path.split("/")[3]]
                    outer.cancelled += 1
                    response.end("cancelled")
                    return self.reply(json.dumps(response.json()).encode(), "application/json")
                assert self.path == "/v1/responses" and body["stream"] and body["background"]
                outer.requests.append(body)
                response = Response(len(outer.requests))
                outer.responses[response.id] = response
                threading.Thread(target=outer.generate, args=(response, outer.reasoning, outer.answer), daemon=True).start()
                cut, outer.cut_after = outer.cut_after, None
                return self.stream(response, 0, cut)

            def stream(self, response, number, cut=None):
                self.reply(b"", "text/event-stream")
                try:
                    while cut is None or number < cut:
                        with response.more:
                            response.more.wait_for(lambda: number < len(response.events) or response.status != "in_progress")
                            if number >= len(response.events):
                                return
                            event = response.events[number]
                        number += 1
                        self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                        self.wfile.flush()
                except OSError:
                    pass  # the browser left

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def generate(self, response, reasoning, answer):
        response.add("response.created", response=response.json())
        pieces = [("response.reasoning_text.delta", r) for r in reasoning] + [("response.output_text.delta", c) for c in answer]
        for kind, delta in pieces:
            if response.status != "in_progress":
                return
            response.add(kind, item_id="item", delta=delta)
            time.sleep(self.pause)
        if response.status == "in_progress":
            response.add("response.completed", response={**response.json(), "status": "completed"})
            response.end("completed")

    def close(self):
        self.server.shutdown()
        self.server.server_close()
