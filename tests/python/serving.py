"""Starts and stops `millrace serve` for tests."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from conftest import BUILD


CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)


class Server:
    def __init__(self, model, *args, env=None, wait=True, threads=1):
        command = [BUILD / "millrace", "serve", "-m", model, "--port", "0", "--log-format", "json", "--threads", threads, *args]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.log = []
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        found = re.search(r"at (https?)://([^:]+|\[.+\]):(\d+)/v1", line)
        assert found, (line, self.log)
        self.url = f"{found[1]}://{found[2]}:{found[3]}"
        self.port = int(found[3])
        if wait:
            self.wait_ready()

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def events(self, name):
        return [e for e in map(self._parse, self.log) if e.get("event") == name]

    @staticmethod
    def _parse(line):
        try:
            return json.loads(line)
        except ValueError:
            return {}

    def wait_ready(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, "".join(self.log[-20:])
            if self.get("/health/ready")[0] == 200:
                return
            time.sleep(0.05)
        raise AssertionError("never ready: " + "".join(self.log[-20:]))

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Status, headers, parsed body."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        r = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            r.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            r.add_header(name, value)
        try:
            with urllib.request.urlopen(r, timeout=timeout) as answer:
                return answer.status, answer.headers, self._body(answer.read())
        except urllib.error.HTTPError as e:
            return e.code, e.headers, self._body(e.read())

    @staticmethod
    def _body(raw):
        try:
            return json.loads(raw)
        except ValueError:
            return raw

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.request("POST", path, body, **kwargs)

    def metric(self, name):
        """The sum over all labels."""
        text = self.get("/metrics")[2].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(name) + r"[{ ]", line))

    def reaches(self, name, expected):
        """Whether the metric gets this value. An answer is counted shortly after the client has it."""
        return self.until(lambda: self.metric(name) == expected)

    def until(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def rss_kb(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self, seconds=60):
        if self.process.poll() is None:
            self.terminate()
        code = self.process.wait(seconds)
        self.reader.join(5)
        return code

    def sanitizer_report(self):
        """The sanitizer's findings, if the server was built with one."""
        first = next((i for i, line in enumerate(self.log) if re.search(r"runtime error:|(Address|Leak|Thread)Sanitizer", line)), None)
        return "" if first is None else "".join(self.log[first:first + 60])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            code = self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert -code not in CRASHES, f"ended by signal {-code}: " + "".join(self.log[-20:])
        assert not self.sanitizer_report(), self.sanitizer_report()
