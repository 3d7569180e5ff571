"""Shared by the whole-program tests: the binary, run as a user runs it, and the golden models."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build" / "release"))
GOLDENS = ROOT / "tests" / "data" / "goldens"


class Millrace:
    """Runs the binary with its own cache folder."""

    def __init__(self, cache):
        self.env = {**os.environ, "MILLRACE_CACHE": str(cache), "HF_ENDPOINT": "http://127.0.0.1:9"}

    def run(self, *args, stdin=None, timeout=120):
        return subprocess.run([BUILD / "millrace", *map(str, args)], input=stdin, capture_output=True, env=self.env, timeout=timeout)

    def json(self, *args, **kwargs):
        done = self.run(*args, "--json", **kwargs)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return json.loads(done.stdout)

    def fails(self, *args, code=1, **kwargs):
        """The one line on stderr of a run that must fail with this code."""
        done = self.run(*args, **kwargs)
        assert done.returncode == code, (done.returncode, done.stderr[-500:])
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("millrace: "), lines
        return lines[0]


@pytest.fixture(scope="session")
def millrace(tmp_path_factory):
    return Millrace(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def tiny():
    """A golden model with a tokenizer."""
    return GOLDENS / "llama_gqa" / "model.gguf"


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory):
    """A tiny random model with a chat template."""
    from tiny_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def server(tiny_chat):
    """One server for all tests that need no special options."""
    from serving import Server

    with Server(tiny_chat) as running:
        yield running
        assert running.process.poll() is None, "".join(running.log[-20:])


@pytest.fixture(scope="session")
def default_model(millrace):
    """A model that writes sensible text: the file in MILLRACE_TEST_MODEL, else the default one, downloaded."""
    named = os.environ.get("MILLRACE_TEST_MODEL")
    if named:
        return named
    if millrace.run("inspect", "default", timeout=600).returncode != 0:
        pytest.skip("the default model cannot be fetched here; MILLRACE_TEST_MODEL can name a file")
    return "default"
