"""A small HTTP server that serves files correctly, incorrectly or not at all, and records its requests."""

import dataclasses
import hashlib
import http.server
import re
import threading
import time


@dataclasses.dataclass
class File:
    content: bytes = b""
    content_type: str = "application/octet-stream"
    etag: str | None = "auto"  # the content's hash; None: no ETag
    ranges: bool = True
    if_range: bool = True  # False: answers a Range even if If-Range does not match
    damage: list = dataclasses.field(default_factory=list)  # positions of bytes that the next answers change
    break_after: list = dataclasses.field(default_factory=list)  # bytes after which the next connections break off
    fail_first: list = dataclasses.field(default_factory=list)  # statuses of the next answers
    status: int = 200
    location: str | None = None  # redirects there
    token: str | None = None  # 401 without this bearer token
    basic: str | None = None  # 401 without this Authorization
    headers: dict = dataclasses.field(default_factory=dict)
    chunk_delay: float = 0.0  # seconds between pieces of 4096 bytes
    stall_after: int | None = None  # sends so many bytes, then nothing more

    def etag_header(self):
        return f'"{hashlib.md5(self.content).hexdigest()}"' if self.etag == "auto" else self.etag


@dataclasses.dataclass
class Request:
    path: str
    headers: dict


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server.owner
        server.requests.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}))
        file = server.files.get(self.path.split("?")[0])
        if file is None:
            return self.answer(404, b"no such file")
        if file.fail_first:
            return self.answer(file.fail_first.pop(0), b"busy")
        authorization = self.headers.get("Authorization")
        if file.token and authorization != f"Bearer {file.token}":
            return self.answer(401, b"who are you?")
        if file.basic and authorization != file.basic:
            return self.answer(401, b"who are you?")
        if file.location:
            return self.answer(302, b"elsewhere", {"Location": file.location, **file.headers})
        if file.status != 200:
            return self.answer(file.status, b"sorry")
        self.send_file(file)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, file):
        begin, status = 0, 200
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, file.etag_header()) or not file.if_range
        if asked and file.ranges and same:
            begin, status = int(asked[1]), 206
            if begin >= len(file.content):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(file.content)}"})
        body = bytearray(file.content)
        if file.damage:
            body[file.damage.pop(0)] ^= 1
        body = body[begin:]
        self.send_response(status)
        self.send_header("Content-Type", file.content_type)
        self.send_header("Content-Length", str(len(body)))
        if file.etag_header():
            self.send_header("ETag", file.etag_header())
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{len(file.content) - 1}/{len(file.content)}")
        for name, value in file.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.send_body(file, body)

    def send_body(self, file, body):
        limit = file.break_after.pop(0) if file.break_after else None
        try:
            for at in range(0, len(body), 4096):
                piece = body[at : at + 4096]
                if limit is not None and at + len(piece) > limit:
                    self.wfile.write(piece[: limit - at])
                    self.close_connection = True
                    return
                if file.stall_after is not None and at >= file.stall_after:
                    self.server.owner.stopping.wait(30)
                    self.close_connection = True
                    return
                self.wfile.write(piece)
                time.sleep(file.chunk_delay)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class FileServer:
    """Serves `files` (path -> File) on a free port of this machine."""

    def __init__(self):
        self.files: dict[str, File] = {}
        self.requests: list[Request] = []
        self.stopping = threading.Event()
        self._httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._httpd.daemon_threads = True
        self._httpd.owner = self
        self._thread = threading.Thread(target=self._httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._httpd.server_address[1]}"

    @property
    def httpd(self):
        return self._httpd

    def asked(self, path):
        return [request for request in self.requests if request.path.split("?")[0] == path]

    def stop(self):
        self.stopping.set()
        self._httpd.shutdown()
        self._thread.join()
        self._httpd.server_close()
