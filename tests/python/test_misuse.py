"""Mistakes on the command line, in files and around the program: one line on stderr that names what was meant, and the exit code."""

import json
import os
import signal
import subprocess

import pytest

from conftest import BUILD


def test_misuse_is_one_line_and_code_2(millrace, tiny):
    millrace.fails("no-such-verb", code=2)
    assert millrace.fails(code=2) == "millrace: give a verb, such as: millrace run \"Why is the sky blue?\"; see 'millrace --help'"
    assert millrace.fails("run", "-m", code=2) == "millrace: --model: its value is missing; see 'millrace run --help'"
    assert millrace.fails("run", "-m", tiny, "--temp", "hot", "a", code=2) == "millrace: --temp = hot: not a number; see 'millrace run --help'"
    assert millrace.fails("detokenize", "-m", tiny, "5", code=2) == "millrace: unexpected argument '5'; did you mean --tokens 5? see 'millrace detokenize --help'"
    assert "did you mean --type Q4_K_M?" in millrace.fails("quantize", tiny, "out.gguf", "Q4_K_M", code=2)
    assert "--ctx: 1k is not a whole number" in millrace.fails("run", "-m", tiny, "a", "--ctx", "1k", code=2)
    assert "--model: is given more than once" in millrace.fails("run", "-m", tiny, "-m", tiny, "a", code=2)
    assert "-m MODEL" in millrace.fails("detokenize", "x.gguf", code=2)
    assert "'millrace run' answers one" in millrace.fails("chat", "hello", code=2)
    millrace.fails("run", "-m", tiny, code=2)
    assert "--no-such" in millrace.fails("run", "-m", tiny, "hi", "--no-such", code=2)
    assert "--isa" in millrace.fails("logits", "-m", tiny, "--tokens", "1", "--isa", "quantum", code=2)
    assert "--kernel" in millrace.fails("logits", "-m", tiny, "--tokens", "1", "--kernel", "linear=none", code=2)
    for device in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0"):
        assert "--device" in millrace.fails("logits", "-m", tiny, "--tokens", "1", "--device", device, code=2)
    assert "kv-type" in millrace.fails("logits", "-m", tiny, "--tokens", "1", "--kv-type", "q2", code=2)
    assert "99999" in millrace.fails("logits", "-m", tiny, "--tokens", "1,99999", code=2)
    assert "top_p" in millrace.fails("run", "-m", tiny, "a", "--top-p", "7", code=2)
    for seed in ("-1", "18446744073709551616", "1.5", "x"):
        assert "seed" in millrace.fails("run", "-m", tiny, "a", "--seed", seed, code=2)


def test_quantize_replaces_no_links(millrace, tiny, tmp_path):
    (tmp_path / "link.gguf").symlink_to(tmp_path / "elsewhere")
    millrace.fails("quantize", tiny, tmp_path / "link.gguf", "--type", "F16", code=2)
    assert (tmp_path / "link.gguf").is_symlink()


def test_contradictions_are_misuse(millrace, tiny):
    millrace.fails("run", "-m", tiny, "--raw", "--system", "be brief", "abc", code=2)
    millrace.fails("logits", "-m", tiny, "--tokens", "1", "--exact", "--kv-type", "q8_0", code=2)
    assert "'frobnicate'" in millrace.fails("frobnicate", code=2)


def test_empty_values_are_misuse_rather_than_ignored(millrace, tiny, tmp_path):
    for option in ("--temp", "--top-k", "--isa", "--kv-type", "--kernel", "-n", "--file"):
        message = millrace.fails("run", "-m", tiny, "hi", option, "", code=2)
        assert "see 'millrace run --help'" in message
    assert "--file" in millrace.fails("tokenize", "-m", tiny, "-f", "", stdin=b"not this", code=2)
    assert "--host" in millrace.fails("serve", "-m", tiny, "--host", "", code=2)  # an empty host would mean all addresses
    assert "OUT" in millrace.fails("quantize", tiny, "", "--type", "F16", code=2)
    assert millrace.json("detokenize", "-m", tiny, "--tokens", "")["text"] == ""


def test_no_number_is_no_value(millrace, tiny):
    for option in ("--rate", "--duration", "--timeout"):
        assert option in millrace.fails("load", "--url", "http://127.0.0.1:9", option, "nan", code=2)
    for seed in ("-1", "18446744073709551616"):
        assert "--seed" in millrace.fails("load", "--url", "http://127.0.0.1:9", "--seed", seed, code=2)
    assert "--tpot-ms" in millrace.fails("serve", "-m", tiny, "--tpot-ms", "nan", code=2)


def test_what_cannot_be_honoured_is_said(millrace, tiny):
    assert "--system" in millrace.fails("run", "-m", tiny, "abc", "--system", "be brief", code=2)
    assert "--chat" in millrace.fails("run", "-m", tiny, "--tokens", "1,2", "--chat", code=2)
    assert "--system" in millrace.fails("run", "-m", tiny, "--tokens", "1,2", "--system", "be brief", code=2)
    millrace.fails("run", "-m", tiny, "--tokens", "", "abc", code=2)
    twice = ("--kernel", "linear=nonsense", "--kernel", "linear=reference")
    assert "twice" in millrace.fails("logits", "-m", tiny, "--tokens", "1", *twice, code=2)
    assert "--ctx" in millrace.fails("inspect", tiny, "--ctx", "99999", code=2)


def test_an_unknown_architecture_is_named(millrace, tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "stub.gguf", "unheard-of")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").write_text("{}")
    assert "config.json names no architecture" in millrace.fails("run", "-m", tmp_path / "folder", "hi")
    for verb in (["run", "hi"], ["chat"], ["serve", "--port", "0"]):
        done = millrace.run(*verb, "-m", tmp_path / "stub.gguf")
        assert done.returncode == 1 and b"architecture 'unheard-of'" in done.stderr.splitlines()[-1], done.stderr


def test_names_in_files_do_not_control_the_terminal(millrace, tmp_path):
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "\x1b[7mx")
    writer.add_tensor("a\x1b]0;title\x07\r\n", numpy.zeros((2, 2), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = tmp_path / "m.gguf"
    path.write_bytes(path.read_bytes().replace(b"\x1b[7mx", b"\x1b[7m\xff"))
    for verb in (["inspect", "--tensors", path], ["run", "hi", "-m", path]):
        done = millrace.run(*verb)
        said = (done.stdout + done.stderr).decode()  # valid UTF-8
        assert not any(ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160 for c in said), said
        assert "[7m\ufffd" in said


def test_files_without_an_end_are_refused(millrace, tiny, tiny_chat):
    assert "more than" in millrace.fails("run", "-m", tiny, "--raw", "-f", "/dev/zero", code=2)
    with open("/dev/zero", "rb") as endless:
        chat = subprocess.run([BUILD / "millrace", "chat", "-m", tiny_chat], stdin=endless, capture_output=True, env=millrace.env, timeout=120)
    assert chat.returncode == 2 and b"stdin: has a line of more than" in chat.stderr
    assert "there is no folder" in millrace.fails("run", "-m", tiny, "--raw", "hi", "--session", "/nonexistent/folder/s")
    assert not os.path.exists("/nonexistent")


def test_a_forced_kernel_that_runs_nothing_is_said(millrace, tiny):
    warned = set()
    for kernel in millrace.json("doctor")["kernels"]["linear"]:
        done = millrace.run("explain", "-m", tiny, "--kernel", f"linear={kernel}", "--json")
        chosen = {c["chosen"] for c in json.loads(done.stdout)["choices"]}
        if b"others are taken" in done.stderr:
            warned.add(kernel)
            assert kernel not in chosen
    assert warned and "reference" not in warned  # the model is in f32: kernels for quantized blocks do not apply


def test_files_that_cannot_be_read_are_named(millrace, tiny, tmp_path):
    assert "/proc/self/mem" in millrace.fails("run", "-m", tiny, "-f", "/proc/self/mem")
    assert "folder" in millrace.fails("serve", "-m", tiny, "--config", tmp_path)
    assert "No such file" in millrace.fails("serve", "-m", tiny, "--tls-cert", tmp_path / "c", "--tls-key", tmp_path / "k")


def test_json_nested_without_end_is_refused(millrace, tmp_path):
    deep = tmp_path / "deep.json"
    deep.write_text('{"messages": ' + "[" * 200_000 + "]" * 200_000 + "}")
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    assert "deep.json" in millrace.fails("template", "--file", tmp_path / "t.jinja", "--input", deep)


def test_nothing_is_computed_for_a_reader_that_is_gone(millrace, tiny):
    ask = [BUILD / "millrace", "bench", "-m", tiny, "-p", ",".join(["8"] * 5000), "-n", "0", "-r", "1000"]
    process = subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=millrace.env)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGPIPE and b"millrace:" not in process.stderr.read()


@pytest.mark.parametrize("many", [1, 60])  # fits in one buffer, and does not
def test_the_end_behind_head_is_quiet(millrace, tiny, many):
    batches = ",".join(str(1 + i) for i in range(many))
    explain = subprocess.Popen([BUILD / "millrace", "explain", "-m", tiny, "-b", batches], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=millrace.env)
    explain.stdout.close()
    assert explain.wait(timeout=60) == -signal.SIGPIPE and b"millrace:" not in explain.stderr.read()


def test_a_full_disk_is_said(millrace, tiny):
    for verb in (["tokenize", "abc"], ["explain"]):  # an answer that fits into a buffer, and one that does not
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BUILD / "millrace", *verb, "-m", tiny], stdout=full, stderr=subprocess.PIPE, env=millrace.env)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == b"millrace: cannot write to stdout: No space left on device"


def test_streams_that_the_caller_closed(millrace, tiny):
    def run(closed, *args):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", BUILD / "millrace", *args]
        return subprocess.run(command, capture_output=True, env=millrace.env, timeout=60)

    ask = ["run", "-m", tiny, "--raw", "-n", "3", "--temp", "0", "hello"]
    answered = run("<&-", *ask)
    assert answered.returncode == 0 and answered.stdout and not answered.stderr
    for closed in (">&-", "<&- >&-"):
        lost = run(closed, *ask)
        assert (lost.returncode, lost.stderr) == (1, b"millrace: cannot write to stdout: Bad file descriptor\n")
    assert run("<&- >&- 2>&-", *ask).returncode == 1


def test_failures_are_one_line_and_code_1(millrace, tmp_path, tiny):
    assert "no-such-file.gguf" in millrace.fails("inspect", tmp_path / "no-such-file.gguf")
    assert "did you mean default?" in millrace.fails("inspect", "defalt")
    (tmp_path / "empty.gguf").write_bytes(b"")
    millrace.fails("inspect", tmp_path / "empty.gguf")
    (tmp_path / "cut.gguf").write_bytes(tiny.read_bytes()[:1000])
    assert "cut.gguf" in millrace.fails("logits", "-m", tmp_path / "cut.gguf", "--tokens", "1")
    assert "cuda" in millrace.fails("logits", "-m", tiny, "--tokens", "1", "--device", "cuda")
    assert "--device cuda:4711: " in millrace.fails("logits", "-m", tiny, "--tokens", "1", "--device", "cuda:4711")
    (tmp_path / "refuse.jinja").write_text("{{ raise_exception('no talk') }}")
    assert "no talk" in millrace.fails("template", "--file", tmp_path / "refuse.jinja", "--input", "-", stdin=b"{}")
    millrace.fails("run", "-m", "someone/some-model", "hello")  # no network in tests: the endpoint refuses
