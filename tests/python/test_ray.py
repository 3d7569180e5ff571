"""millrace.ray: several replicas behind one address, on a cluster whose nodes are processes of this machine."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile

import pytest

WHEEL = os.environ.get("MILLRACE_WHEEL")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not WHEEL, reason="MILLRACE_WHEEL names no wheel")]
pytest.importorskip("ray.serve", reason="ray is not installed")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The package's modules, in this process. The cluster's processes find the package by PYTHONPATH."""
    site = tmp_path_factory.mktemp("ray-site")
    zipfile.ZipFile(WHEEL).extractall(site)
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{site}:{before}"
    os.environ["MILLRACE_CACHE"] = str(tmp_path_factory.mktemp("ray-cache"))
    sys.path.insert(0, str(site))
    import millrace.ray

    assert pathlib.Path(millrace.ray.__file__).is_relative_to(site)
    yield millrace.ray
    sys.path.remove(str(site))
    os.environ["PYTHONPATH"] = before


# The parts.


def conversation(first, turns):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": first}]
    for turn in range(turns):
        messages += [{"role": "assistant", "content": f"answer {turn}"}, {"role": "user", "content": f"question {turn}"}]
    return json.dumps({"model": "m", "messages": messages}).encode()


def test_a_turn_has_the_keys_of_the_turn_before(parts):
    short, long = parts.prefix_keys(conversation("a", 1)), parts.prefix_keys(conversation("a", 2))
    assert long[: len(short)] == short and len(long) == len(short) + 2
    other = parts.prefix_keys(conversation("b", 1))
    assert not set(other) & set(short), "a system message alone is no beginning of a conversation"
    text = "word " * 500
    assert parts.prefix_keys(json.dumps({"prompt": text + "x"}).encode())[:4] == parts.prefix_keys(json.dumps({"prompt": text}).encode())[:4]
    for nothing in (b"", b"[1]", b"{", b'{"messages": []}', b'{"messages": 7}', b'"x"'):
        assert parts.prefix_keys(nothing) == []


def test_affinity(parts):
    from millrace.ray.affinity import Affinity

    affinity = Affinity(slack=4, most_keys=100)
    loads = {"a": 0, "b": 0, "c": 0}
    first = affinity.choose(["k1", "k2"], loads)
    assert first == Affinity().choose(["k1"], loads), "two fronts must agree on a conversation that both see first"
    affinity.remember(["k1", "k2"], "b")
    assert affinity.choose(["k1", "k2", "k3"], loads) == "b"
    assert affinity.choose(["k1", "k2", "k3"], loads | {"b": 3}) == "b"
    assert affinity.choose(["k1", "k2", "k3"], loads | {"b": 4, "c": 1}) == "a", "an overloaded replica is left alone"
    assert affinity.choose(["k1", "k2", "k3"], {"a": 7, "c": 6}) in "ac", "a replica that is gone is forgotten"
    assert affinity.choose([], {"a": 2, "b": 1}) == "b"
    shares = {name: sum(affinity.choose([f"new{i}"], loads) == name for i in range(300)) for name in loads}
    assert min(shares.values()) > 60
    affinity.remember([f"old{i}" for i in range(200)], "c")
    assert affinity.choose(["old0"], loads) == Affinity().choose(["old0"], loads), "the table is bounded"


def test_queued_tokens_decide_the_number_of_replicas(parts):
    policy = parts.QueuedTokens(queued_tokens=1000, running=10)
    assert [policy.wanted(queued, 0) for queued in (0, 1000, 1001, 5500)] == [1, 1, 2, 6]
    assert [policy.wanted(0, running) for running in (1, 10, 11, 95)] == [1, 1, 2, 10]
    assert policy.wanted(1500, 95) == 10


def test_the_board_merges_pages(parts):
    from millrace.ray.board import SECONDS_TO_FORGET, Board

    now = [0.0]
    board = Board(lambda: now[0])
    assert board.read() == ""
    page = '# HELP tokens All\n# TYPE tokens counter\ntokens{model="m"} 3\n# TYPE up gauge\nup 1\n'
    board.post("r1", page)
    now[0] = SECONDS_TO_FORGET - 1
    board.post("r2", page.replace("3", "4"))
    assert board.read() == (
        '# HELP tokens All\n# TYPE tokens counter\ntokens{model="m",replica="r1"} 3\ntokens{model="m",replica="r2"} 4\n'
        '# TYPE up gauge\nup{replica="r1"} 1\nup{replica="r2"} 1\n'
    )
    now[0] += 2
    assert "r1" not in board.read() and 'up{replica="r2"} 1' in board.read()


# A cluster.

REPLICAS = 3


@pytest.fixture(scope="module")
def settings(tiny_chat):
    return {"model": str(tiny_chat), "min_replicas": REPLICAS, "max_replicas": REPLICAS, "options": {"threads": 1, "sequences": 16}}


@pytest.fixture(scope="module")
def cluster(parts, settings):
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1"}
    # Processes start slowly on a busy machine.
    os.environ |= {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60"}
    detection = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20, "_system_config": detection}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for node in range(REPLICAS + 1):  # one is left when a node is lost
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    port = free_port()
    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    serve.run(parts.app(settings), name="millrace", route_prefix="/")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def post(base, path, fields, timeout=120):
    request = urllib.request.Request(base + path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=timeout)


def chat(base, messages, **fields):
    return json.load(post(base, "/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0, **fields}))


def test_the_api_is_the_servers(cluster):
    assert json.load(urllib.request.urlopen(cluster + "/v1/models"))["data"]
    answer = chat(cluster, [{"role": "user", "content": "hello"}])
    assert answer["usage"]["completion_tokens"] == 4
    with post(cluster, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0, "stream": True}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = [line[6:] for line in stream.read().decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    text = "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1])
    assert text == answer["choices"][0]["message"]["content"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(cluster, "/v1/chat/completions", {"messages": 7})
    assert refused.value.code == 400 and "error" in json.load(refused.value)


def test_turns_of_conversations_meet_their_prefix_and_metrics_are_in_one_place(cluster):
    met = []

    def converse(name):
        messages = [{"role": "user", "content": f"Conversation {name}: " + "tell me more. " * 12}]
        for turn in range(4):
            answer = chat(cluster, messages)
            if turn > 0:
                met.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
            messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, {"role": "user", "content": f"and {turn}?"}]

    threads = [threading.Thread(target=converse, args=(name,)) for name in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(met) == 36 and sum(met) >= 0.9 * len(met)

    # A hash of its beginning places a conversation: among so many, every replica has some.
    for i in range(60):
        chat(cluster, [{"role": "user", "content": f"{i} is a number. " * 12}])
    for _ in range(100):  # replicas post every second
        page = urllib.request.urlopen(cluster + "/metrics").read().decode()
        counts = [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("vllm:generation_tokens_total{")]
        if len(counts) == REPLICAS and all(counts):
            break
        time.sleep(0.2)
    assert len(counts) == REPLICAS and all(counts), "every replica takes a share"


def replica_processes():
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listing.splitlines() if "ServeReplica:millrace:Replica" in line]


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.3)
    assert condition()


class Load:
    """Many requests at once, every second one as a stream. `done` counts those that were answered in full."""

    def __init__(self, base, count):
        self.base, self.broken, self.lost, self.done = base, [], 0, 0
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(count)]

    def ask(self, i):
        fields = {"messages": [{"role": "user", "content": f"Request {i}"}], "max_tokens": 60, "ignore_eos": True, "stream": i % 2 == 0}
        try:
            with post(self.base, "/v1/chat/completions", fields) as response:
                body = response.read()
        except Exception as error:
            self.broken.append((i, repr(error)))
            return
        if b"[DONE]" in body if i % 2 == 0 else json.loads(body)["usage"]["completion_tokens"] == 60:
            self.done += 1
        elif i % 2 == 0 and b"replica_lost" in body:  # it had begun to stream
            self.lost += 1
        else:
            self.broken.append((i, body[-200:]))

    def run(self, halfway):
        for i, thread in enumerate(self.threads):
            thread.start()
            if i == len(self.threads) // 2:
                halfway()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("victim", ["replica", "node"])
def test_what_is_killed_under_load_loses_no_request_that_has_not_begun(cluster, victim):
    before = replica_processes()
    assert len(before) == REPLICAS

    def kill():
        raylet = int(pathlib.Path(f"/proc/{before[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])
        for process in [before[0]] if victim == "replica" else [raylet, before[0]]:
            os.kill(process, signal.SIGKILL)

    load = Load(cluster, 30)
    load.run(kill)
    assert not load.broken and load.done + load.lost == 30 and load.done >= 15
    wait_for(lambda: before[0] not in replica_processes() and len(replica_processes()) == REPLICAS)


def test_fewer_replicas_lose_no_stream(cluster, parts, settings):
    from ray import serve

    load = Load(cluster, 20)
    fewer = parts.app(settings | {"min_replicas": 1, "max_replicas": 1})
    load.run(lambda: threading.Thread(target=serve.run, args=(fewer,), kwargs={"name": "millrace", "route_prefix": "/"}).start())
    assert not load.broken and load.done == 20
    wait_for(lambda: len(replica_processes()) == 1)


def test_waiting_prompts_start_replicas(cluster, parts, settings):
    from ray import serve

    more = {"min_replicas": 1, "max_replicas": 2, "queued_tokens": 1000, "running": 2, "upscale_seconds": 0.1}
    serve.run(parts.app(settings | more), name="millrace", route_prefix="/")
    busy = threading.Event()

    def keep_busy(i):  # with long answers, so that a sample of what runs meets them on a fast machine, too
        while not busy.is_set():
            chat(cluster, [{"role": "user", "content": f"{i} is a number"}], max_tokens=1500, ignore_eos=True)

    threads = [threading.Thread(target=keep_busy, args=(i,)) for i in range(10)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(replica_processes()) == 2)
    finally:
        busy.set()
        for thread in threads:
            thread.join()
