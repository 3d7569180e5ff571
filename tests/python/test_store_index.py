"""Models inside wheels, from a local package index, and its certificates."""

import base64
import functools
import io
import json
import shutil
import ssl
import struct
import subprocess
import zipfile

import pytest

from file_server import File
from store_probe import GGUF, other_host, probe, server, sha256, some_bytes

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
