"""Downloading models from a local server: resuming, verifying, secrets, hostile answers."""

import json
import pathlib
import signal
import time

import pytest

from file_server import File
from store_probe import GGUF, other_host, probe, server, sha256, some_bytes, TOKEN, wait_until

# Without a network


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
