"""millrace load against millrace serve, and the page as the server delivers it."""

import json
import socket
import threading
import time

import pytest

from serving import Server
from tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    with Server(path) as server:
        yield server


def test_streams_at_a_time(millrace, server):
    report = millrace.json("load", "--url", server.url, "-c", "3", "--requests", "6", "--words", "8", "-n", "5", "--seed", "1")
    assert report["requests"] == 6 and report["failed"] == 0
    assert all(r["tokens"] == 5 and r["prompt_tokens"] > 8 for r in report["each"])
    assert 0 < report["ttft_ms"]["p50"] <= report["ttft_ms"]["p99"]
    assert report["tokens_per_second"] > 0 and report["plan"]["streams"] == 3


def test_rate(millrace, server, tmp_path):
    plot = tmp_path / "plot.svg"
    done = millrace.run("load", "--url", server.url + "/v1", "--rate", "8", "--duration", "2", "--words", "4", "-n", "3", "--svg", plot)
    assert done.returncode == 0, done.stderr
    assert b"TTFT" in done.stdout and b"requests/s" in done.stdout
    assert plot.read_text().startswith("<svg") and not done.stderr


def test_an_answer_that_comes_before_the_request_was_sent(millrace, tmp_path):
    write_tiny_model(tmp_path / "tiny.gguf")
    with Server(tmp_path / "tiny.gguf", "--max-body-mb", "1") as server:
        done = millrace.run("load", "--url", server.url, "-c", "1", "--requests", "1", "--words", "1000000", "-n", "2", "--json")
        report = json.loads(done.stdout)
        assert report["failed"] == 1 and "status 413" in report["problem"], report["problem"]


class RefusingServer:
    """Lists a model, and refuses any request larger than a kilobyte once it has read that much. The unread rest fills the buffers
    in between, so that the client cannot send more; then it closes, which resets the connection, or waits for the client to leave."""

    def __init__(self, closes):
        self.closes = closes
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self.listener.accept()
            if connection.recv(1024).startswith(b"GET"):
                self._answer(connection, "200 OK", {"data": [{"id": "m"}]})
            else:
                self._answer(connection, "413 Content Too Large", {"error": {"message": "too much"}})
                if not self.closes:
                    time.sleep(20)
            connection.close()

    @staticmethod
    def _answer(connection, status, body):
        text = json.dumps(body)
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())


@pytest.mark.parametrize("closes", [False, True])
def test_an_answer_to_a_request_that_cannot_be_sent(millrace, closes):
    server, begun = RefusingServer(closes), time.monotonic()
    done = millrace.run("load", "--url", server.url, "-c", "1", "--requests", "1", "--prefix-words", "1000000", "--words", "1000000", "-n", "2", "--json")
    report = json.loads(done.stdout)
    assert report["failed"] == 1 and report["problem"] == "status 413: too much", report["problem"]
    assert time.monotonic() - begun < 15


def test_load_without_a_server(millrace):
    assert "cannot reach" in millrace.fails("load", "--url", "http://127.0.0.1:9", "-c", "1", "--requests", "1")


def test_the_page_is_served(server):
    status, headers, body = server.get("/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"<title>millrace" in body
    assert "script-src 'self'" in headers["Content-Security-Policy"] and "unsafe" not in headers["Content-Security-Policy"]
    status, headers, body = server.get("/page/main.js")
    assert status == 200 and headers["Content-Type"].startswith("text/javascript")
    assert server.get("/page/main.js", headers={"If-None-Match": headers["ETag"]})[0] == 304
    assert server.get("/page/nothing.js")[0] == 404


def test_the_live_view_has_its_numbers(server):
    status, _, stats = server.get("/engine")
    assert status == 200 and stats["kv"]["blocks"] > 0 and stats["streams"] == []
    status, _, flow = server.get("/engine/dataflow")
    assert status == 200 and flow["choices"] and all(c["kernel"] and (c["percent_of_roof"] or 0) >= 0 for c in flow["choices"])
