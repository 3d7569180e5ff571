"""A percent of the roof is shown only where the roof was measured."""

import json
import os
import subprocess
import sys

import pytest

from conftest import BUILD, Millrace
from serving import Server


@pytest.fixture
def keep_ceilings(tmp_path):
    """Keeps peak rates as `doctor` would, whether or not this machine is quiet enough to measure them."""
    def keep(threads):
        millrace = Millrace(tmp_path)
        hardware = json.loads(millrace.run("doctor", "-t", threads, "--json").stdout)["hardware"]
        kept = tmp_path / "hardware" / f"{hardware['id']}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps({"version": 3, "ceilings": {**hardware["ceilings"], "measured": True}}))
        return millrace
    return keep


def dataflow(tiny, cache):
    with Server(tiny, env={"MILLRACE_CACHE": str(cache)}) as server:
        return [c["percent_of_roof"] for c in server.get("/engine/dataflow")[2]["choices"]]


def test_dataflow(tiny, tmp_path, keep_ceilings):
    percents = dataflow(tiny, tmp_path)
    assert percents and set(percents) == {None}
    keep_ceilings(1)
    percents = dataflow(tiny, tmp_path)
    assert percents and all(p > 0 for p in percents)


def test_explain_with_a_measured_roof(tiny, keep_ceilings):
    millrace = keep_ceilings(1)
    shown = millrace.run("explain", "-m", tiny, "-t", 1).stdout.decode()
    assert "ceilings measured" in shown and " %" in shown
    choices = millrace.json("explain", "-m", tiny, "-t", 1)["choices"]
    assert all(c["percent_of_roof"] > 0 for choice in choices for c in choice["candidates"])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_explain_on_a_busy_machine(tiny, tmp_path):
    """Other programs take most of the only core: nothing is measured, and no percent is shown."""
    core = {min(os.sched_getaffinity(0))}
    pin = lambda: os.sched_setaffinity(0, core)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=pin) for _ in range(4)]
    try:
        env = {**os.environ, "MILLRACE_CACHE": str(tmp_path)}
        done = subprocess.run([BUILD / "millrace", "explain", "-m", tiny, "-t", "1"], env=env, capture_output=True, text=True, timeout=120, preexec_fn=pin)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert done.returncode == 0, done.stderr
    assert "ceilings guessed" in done.stdout and "%" not in done.stdout
    assert "busy" in done.stderr and not list((tmp_path / "hardware").glob("*.json"))
