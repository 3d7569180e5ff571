"""millrace chat, through a pipe and on a terminal."""

import json
import os
import pty
import select
import signal
import subprocess

import pytest

from conftest import BUILD
from tiny_model import TEMPLATE, write_tiny_model

SHORT = ["-n", "6", "--temp", "0"]


def talk(millrace, model, tmp_path, *lines, args=SHORT, code=0):
    """The messages after these lines, and what was printed."""
    script = "\n".join([*lines, f"/save {tmp_path}/talk.json", "/quit"]) + "\n"
    done = millrace.run("chat", "-m", model, *args, stdin=script.encode())
    assert done.returncode == code, done.stderr
    return json.loads((tmp_path / "talk.json").read_text()) if code == 0 else [], done


def said(messages, role="user"):
    return [m["content"] for m in messages if m["role"] == role]


def test_every_answer_has_its_own_seed(millrace, tiny_chat, tmp_path):
    args = ["-n", "12", "--temp", "1.5", "--seed", "7"]
    same = ["hi", "/undo"] * 3 + ["hi"]
    _, done = talk(millrace, tiny_chat, tmp_path, *same, args=args)
    answers = [line for line in done.stdout.decode(errors="replace").replace("undone\n", "\0").split("\0")]
    assert len(set(answers)) == len(answers) == 4
    _, again = talk(millrace, tiny_chat, tmp_path, *same, args=args)
    assert again.stdout == done.stdout  # and the conversation as a whole repeats


def test_retry_and_undo(millrace, tiny_chat, tmp_path):
    messages, done = talk(millrace, tiny_chat, tmp_path, "one", "two", "/retry", args=["-n", "12", "--temp", "1.5", "--seed", "7"])
    before, _ = talk(millrace, tiny_chat, tmp_path, "one", "two", args=["-n", "12", "--temp", "1.5", "--seed", "7"])
    assert said(messages) == said(before) == ["one", "two"]
    assert messages[1] == before[1] and messages[3] != before[3]
    messages, _ = talk(millrace, tiny_chat, tmp_path, "one", "two", "/undo")
    assert said(messages) == ["one"] and len(messages) == 2
    assert "no answer" in millrace.fails("chat", "-m", tiny_chat, stdin=b"/retry\n", code=2)
    assert "no message" in millrace.fails("chat", "-m", tiny_chat, stdin=b"/undo\n", code=2)


def test_blocks_and_messages_with_slashes(millrace, tiny_chat, tmp_path):
    messages, done = talk(millrace, tiny_chat, tmp_path, '"""first', "", '  /reset"""', "/usr/bin is what?", "//help", "/rset")
    assert said(messages) == ["first\n\n  /reset", "/usr/bin is what?", "/help"]
    assert b"unknown command" in done.stderr


def test_system_and_set(millrace, tiny_chat, tmp_path):
    messages, done = talk(millrace, tiny_chat, tmp_path, "/system be brief", "one", "/set max-tokens 2", "/set temp 0.5", "/set", "two")
    assert messages[0] == {"role": "system", "content": "be brief"} and len(messages) == 5
    assert b"temperature 0.5" in done.stdout
    assert len(messages[4]["content"]) <= 2 < len(messages[2]["content"])  # a token is a character
    messages, _ = talk(millrace, tiny_chat, tmp_path, "/system a", '/system ""', "one", args=[*SHORT, "--system", "b"])
    assert [m["role"] for m in messages] == ["user", "assistant"]
    messages, _ = talk(millrace, tiny_chat, tmp_path, "one", "/reset", args=[*SHORT, "--system", "b"])
    assert messages == [{"role": "system", "content": "b"}]
    for line in ("/set temp hot", "/set nonsense 1", "/set temp", "/set top-p 7", "/set seed -1"):
        message = millrace.fails("chat", "-m", tiny_chat, stdin=f"{line}\n".encode(), code=2)
        assert line.split()[1].replace("-", "_") in message.replace("-", "_")
    for line, says in (("/set temp hot", "not a number"), ("/set tmep 1", "no such option; did you mean temp?"), ("/set help 1", "no such option")):
        assert says in millrace.fails("chat", "-m", tiny_chat, stdin=f"{line}\n".encode(), code=2)
    _, done = talk(millrace, tiny_chat, tmp_path, "/set temp 1", "/set ignore-eos on", "/set presence-penalty 0.5", "/set")
    assert b"presence penalty 0.5" in done.stdout


def test_load_and_stats(millrace, tiny_chat, tmp_path):
    before, _ = talk(millrace, tiny_chat, tmp_path, "one")
    (tmp_path / "old.json").write_text(json.dumps(before))
    messages, done = talk(millrace, tiny_chat, tmp_path, f"/load {tmp_path}/old.json", "two", "/stats")
    assert messages[:2] == before and said(messages) == ["one", "two"]
    assert b"2 messages" in done.stdout and b"of 2048 tokens of the context" in done.stdout and b"tokens/s" in done.stdout
    for text in ("[1]", "{", '[{"role": "user"}]', '[{"role": "user", "content": 1}]', "3"):
        (tmp_path / "bad.json").write_text(text)
        assert "bad.json" in millrace.fails("chat", "-m", tiny_chat, stdin=f"/load {tmp_path}/bad.json\n".encode())
    assert "name of a file" in millrace.fails("chat", "-m", tiny_chat, stdin=b"/load\n", code=2)


def test_a_full_context_drops_its_oldest_turns_and_says_so_once(millrace, tmp_path):
    model = write_tiny_model(tmp_path / "small.gguf", context=256)
    lines = [f"message {i} " + "x" * 40 for i in range(12)]
    messages, done = talk(millrace, model, tmp_path, *lines, args=[*SHORT, "--system", "s"])
    assert len(said(messages)) == 12  # the history itself stays whole
    assert done.stderr.decode().count("oldest turns are left out") == 1
    too_long = millrace.run("chat", "-m", model, *SHORT, stdin=b"x" * 300 + b"\n")
    assert too_long.returncode == 2 and b"maximum context length is 256" in too_long.stderr


def test_reasoning_is_kept_apart(millrace, tmp_path):
    model = write_tiny_model(tmp_path / "thinks.gguf", template=TEMPLATE.replace("assistant\n", "assistant\n<think>\n"))
    messages, done = talk(millrace, model, tmp_path, "hi", "/think")
    assert messages[1]["content"] == "" and messages[1]["reasoning_content"] in done.stdout.decode()
    messages, _ = talk(millrace, model, tmp_path, "/set thinking off", "hi", args=["-n", "20", "--temp", "0"])
    assert messages[1]["content"] and "reasoning_content" not in messages[1]


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, millrace, model, *args, **env):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen([BUILD / "millrace", "chat", "-m", model, *args], stdin=theirs, stdout=theirs, stderr=theirs,
                                        env={**millrace.env, "TERM": "xterm", **env}, start_new_session=True)
        os.close(theirs)
        self.shown = b""

    def until(self, *texts):
        """Everything shown up to one of these texts; it is not shown again."""
        while not any(text in self.shown for text in texts):
            assert select.select([self.ours], [], [], 20)[0], self.shown
            self.shown += os.read(self.ours, 4096)
        end = min(self.shown.index(text) + len(text) for text in texts if text in self.shown)
        shown, self.shown = self.shown[:end], self.shown[end:]
        return shown

    def type(self, text):
        os.write(self.ours, text.encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        os.close(self.ours)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "", "xx_YY.nonsense"])
def test_letters_beyond_ascii_arrive(millrace, tiny_chat, tmp_path, locale):
    with Terminal(millrace, tiny_chat, *SHORT, LC_ALL=locale, LANG=locale, NO_COLOR="1") as chat:
        chat.until(b"> ")
        chat.type("héllo 日本語 🙂\r")
        chat.until(b"> ")
        chat.type(f"/save {tmp_path}/talk.json\r")
        chat.until(b"saved to " + str(tmp_path).encode())
        assert said(json.loads((tmp_path / "talk.json").read_text())) == ["héllo 日本語 🙂"]


def test_a_dumb_terminal_gets_plain_text(millrace, tiny_chat):
    with Terminal(millrace, tiny_chat, *SHORT, TERM="dumb") as chat:
        shown = chat.until(b"> ")
        chat.type("hi\r")
        shown += chat.until(b"> ")
        assert b"\x1b" not in shown


def test_pasted_lines_are_one_message(millrace, tiny_chat, tmp_path):
    with Terminal(millrace, tiny_chat, *SHORT, NO_COLOR="1") as chat:
        assert b"\x1b[?2004h" in chat.until(b"> ")
        chat.type("\x1b[200~first\r/help\r\r  日本 third\r\x1b[201~ and typed\r")
        chat.until(b"and typed")
        chat.until(b"> ")
        chat.type('"""\rblock one\rblock two\r"""\r')
        chat.until(b'"""\r\n')
        chat.until(b'"""\r\n')
        chat.until(b"\n> ")
        chat.type(f"/save {tmp_path}/talk.json\r")
        chat.until(b"saved to " + str(tmp_path).encode())
        messages = json.loads((tmp_path / "talk.json").read_text())
        assert said(messages) == ["first\n/help\n\n  日本 third and typed", "block one\nblock two"]


def test_reasoning_is_dim_and_folds(millrace, tmp_path):
    model = write_tiny_model(tmp_path / "thinks.gguf", template=TEMPLATE.replace("assistant\n", "assistant\n<think>\n"))
    with Terminal(millrace, model, *SHORT) as chat:
        chat.until(b">\x1b[0m ")
        chat.type("hi\r")
        chat.until(b"\x1b[2m")
        chat.until(b">\x1b[0m ")
        chat.type("/fold\r")
        chat.until(b"reasoning is folded")
        chat.type("again\r")
        chat.until(b"/think shows them")
