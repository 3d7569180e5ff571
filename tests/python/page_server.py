"""A server that answers like millrace serve with given contents: for tests of the page, without a model."""

import http.server
import json
import pathlib
import re
import threading
import time

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "page" / "assets"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = re.search(r'kPagePolicy =\s*"(.*?)";', (ASSETS.parent / "page.h").read_text(), re.S)[1].replace('"\n    "', "")

ENGINE = {"running": 2, "waiting": 1, "tokens_per_second": 41.5, "step_ms": 12.3, "step_rows": 2,
          "kv": {"blocks": 100, "used": 25, "cached": 10},
          "streams": [{"id": 7, "choice": 0, "client": "<b>ann</b>", "prompt_tokens": 12, "computed_tokens": 12, "generated_tokens": 3}],
          "steps": 9, "requests": 3, "prompt_tokens": 100, "cached_tokens": 50, "generated_tokens": 9, "preemptions": 0}
DATAFLOW = {"choices": [{"op": "linear", "what": "linear", "format": "Q8_0", "layout": "rows", "n": 576, "k": 576, "m": 1, "calls": 30,
                         "kernel": "gemv_sdot", "microseconds": 12.5, "measured": True, "percent_of_roof": 83.2}]}


class PageServer:
    """`answer` is the next answer, in pieces with `pause` seconds between them; `requests` records the requests."""

    def __init__(self):
        self.answer = ["Hello"]
        self.reasoning = []
        self.pause = 0.0
        self.requests = []
        self.left_early = 0
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
                known = {"/v1/models": {"data": [{"id": "test-model"}]}, "/engine": ENGINE, "/engine/dataflow": DATAFLOW}
                if self.path in known:
                    return self.reply(json.dumps(known[self.path]).encode(), "application/json")
                file = ASSETS / ("index.html" if self.path == "/" else self.path.removeprefix("/page/"))
                if not file.is_file():
                    return self.send_error(404)
                return self.reply(file.read_bytes(), TYPES[file.suffix])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                self.reply(b"", "text/event-stream")
                deltas = [{"role": "assistant"}, *({"reasoning_content": r} for r in outer.reasoning), *({"content": c} for c in outer.answer)]
                try:
                    for delta in deltas:
                        self.send({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                        time.sleep(outer.pause)
                    self.send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                    self.send({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(outer.answer)}})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    outer.left_early += 1

            def send(self, data):
                self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
                self.wfile.flush()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
