"""The program that downloads models for the tests, in its own environment, and a server for it."""

import hashlib
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

from file_server import FileServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build" / "release")) / "tests" / "store" / "fetch_probe"
SEED = random.SystemRandom().randrange(2**32)
TOKEN = "hf_secret_of_the_test"
GGUF = "/owner/name/resolve/main/m.gguf"


def some_bytes(count):
    return random.Random(SEED).randbytes(count)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server():
    made = FileServer()
    yield made
    made.stop()


@pytest.fixture
def other_host():
    made = FileServer()
    yield made
    made.stop()


class Probe:
    """Runs the probe in its own environment."""

    def __init__(self, folder, url):
        self.cache = folder / "cache"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "MILLRACE_CACHE": str(self.cache),
            "HF_HOME": str(folder / "hf"),
            "HF_ENDPOINT": url,
            "MILLRACE_PYPI_INDEX": url + "/simple",
            "PIP_CONFIG_FILE": "/dev/null",
            "MILLRACE_FETCH_PATIENCE": "2",
        }
        # Leak detection takes seconds at the end of every process in a sanitized build; the unit tests cover it.
        self.env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "detect_leaks=0")

    def start(self, *args, **env):
        # Background jobs have SIGINT ignored; the probe must not inherit that.
        return subprocess.Popen([PROBE, *args], env={**self.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def run(self, *args, **env):
        return subprocess.run([PROBE, *args], env={**self.env, **env}, capture_output=True, text=True, timeout=60)

    def path_of(self, *args, **env):
        done = self.run(*args, **env)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.strip())

    def error_of(self, *args, **env):
        done = self.run(*args, **env)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        assert done.stderr.count("\n") == 1, "an error is one line"
        return done.stderr

    def leftovers(self):
        return sorted(p.name for p in self.cache.rglob("*") if ".part" in p.name)


@pytest.fixture
def probe(tmp_path, server):
    assert PROBE.exists(), f"{PROBE} is not built"
    print("seed", SEED)
    return Probe(tmp_path, server.url)


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
