"""Sessions whose clients run tools: their state is parked, and a ledger counts what they take."""

import pytest

from serving import Server

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"], "additionalProperties": False}}}]
# 16 pages for a chat of five pages: other requests evict it.
SMALL = ("--kv-tokens", 1024, "--ctx", 1024, "--parallel", 2, "--batch-invariant")
QUESTION = {"role": "user", "content": "Where is it? " * 20}
CHAT = "/v1/chat/completions"


def ask(server, messages, **more):
    body = {"messages": messages, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100, "temperature": 0, **more}
    status, _, answer = server.post(CHAT, body)
    assert status == 200, answer
    return answer


def call_a_tool(server, **more):
    answer = ask(server, [QUESTION], **more)
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    return answer, [QUESTION, answer["choices"][0]["message"], {"role": "tool", "tool_call_id": answer["choices"][0]["message"]["tool_calls"][0]["id"], "content": "It is there."}]


def go_on(server, messages, **more):
    return ask(server, messages, tool_choice="auto", max_tokens=8, **more)


def evict(server):
    for i in range(4):
        assert server.post("/v1/completions", {"prompt": chr(ord("a") + i) * 900, "max_tokens": 1})[0] == 200


def sessions(server, **kwargs):
    return server.get("/engine/sessions", **kwargs)[2]


@pytest.fixture(scope="module")
def wanted(tiny_chat):
    """The two answers of a session that nothing interrupts."""
    with Server(tiny_chat, *SMALL) as alone:
        first, messages = call_a_tool(alone)
        return first["choices"][0]["message"]["tool_calls"][0]["function"], go_on(alone, messages)["choices"][0]["message"]["content"]


def test_names_of_sessions_are_not_cut(server):
    body = {"messages": [QUESTION], "max_tokens": 1}
    for name, headers, more in (("session_id", {}, {"session_id": "a" * 129}), ("X-Session-Id", {"X-Session-Id": "a" * 129}, {})):
        status, _, refused = server.post(CHAT, {**body, **more}, headers=headers)
        assert status == 400 and refused["error"]["param"] == name
    assert server.post(CHAT, {**body, "session_id": "a" * 128})[0] == 200


def test_a_parked_session_goes_on_from_memory(tiny_chat, wanted):
    with Server(tiny_chat, *SMALL) as server:
        first, messages = call_a_tool(server)
        assert first["choices"][0]["message"]["tool_calls"][0]["function"] == wanted[0]
        begun = first["usage"]["ledger"]["session"]
        assert begun["requests"] == 1 and begun["completion_tokens"] == first["usage"]["completion_tokens"]
        [session] = sessions(server)["sessions"]
        assert session["state"] == "parked" and session["kept_in"] == "device" and session["id"] == begun["id"]
        evict(server)
        [session] = sessions(server)["sessions"]
        assert session["kept_in"] == "memory" and session["kept_tokens"] >= session["tokens"] - 2
        assert server.until(lambda: server.metric("millrace:parked_bytes") > 0)

        second = go_on(server, messages)
        assert second["choices"][0]["message"]["content"] == wanted[1]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 4
        ledger = second["usage"]["ledger"]["session"]
        assert ledger["id"] == begun["id"] and ledger["requests"] == 2
        for name in ("prompt_tokens", "completion_tokens"):
            assert ledger[name] == first["usage"][name] + second["usage"][name]
        assert ledger["compute_ms"] == pytest.approx(first["usage"]["ledger"]["compute_ms"] + second["usage"]["ledger"]["compute_ms"])
        [session] = sessions(server)["sessions"]
        assert session["state"] == "ended" and session["ledger"]["requests"] == 2
        assert server.reaches("millrace:parked_bytes", 0)
        assert server.reaches("millrace:parked_restored_total", 1)

        # The same question again is another session; a session that is named needs no tool.
        assert call_a_tool(server)[0]["usage"]["ledger"]["session"]["id"] != begun["id"]
        named = ask(server, [QUESTION], tool_choice="auto", max_tokens=4, session_id="mine")
        assert named["usage"]["ledger"]["session"]["id"] == "mine"
        assert "session" not in ask(server, [QUESTION], tool_choice="auto", max_tokens=4)["usage"]["ledger"]


def test_a_parked_session_survives_a_restart(tiny_chat, wanted, tmp_path):
    options = (*SMALL, "--park-memory", "0", "--park-dir", tmp_path / "park")
    with Server(tiny_chat, *options) as server:
        first, messages = call_a_tool(server)
        assert server.post("/v1/messages", {"messages": [QUESTION], "max_tokens": 100, "temperature": 0, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "tools": [
            {"name": "look", "input_schema": TOOLS[0]["function"]["parameters"]}]}, headers={"X-Session-Id": "other"})[0] == 200
        assert {s["id"] for s in sessions(server)["sessions"]} == {"other", first["usage"]["ledger"]["session"]["id"]}
        evict(server)
        assert server.until(lambda: sessions(server)["parked"]["disk"]["states"] > 0)
    files = list((tmp_path / "park").rglob("*.park"))
    assert files
    with Server(tiny_chat, *options) as server:
        second = go_on(server, messages)
        assert second["choices"][0]["message"]["content"] == wanted[1]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 4
        # A file that was damaged meanwhile costs time only.
        _, messages = call_a_tool(server)
        evict(server)
        assert server.until(lambda: sessions(server)["parked"]["disk"]["states"] > 0)
        for file in (tmp_path / "park").rglob("*.park"):
            file.write_bytes(file.read_bytes()[:-1])
        third = go_on(server, messages)
        assert third["choices"][0]["message"]["content"] == wanted[1]
        assert any("computed again" in line for line in server.log)


def test_sessions_belong_to_their_keys(tiny_chat, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice sk-alice-key\nbob sk-bob-key\n")
    with Server(tiny_chat, *SMALL, "--api-key-file", keys) as server:
        alice, bob = ({"Authorization": f"Bearer sk-{name}-key"} for name in ("alice", "bob"))
        body = {"messages": [QUESTION], "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100, "temperature": 0}
        assert server.post(CHAT, body, headers=alice)[0] == 200
        assert len(sessions(server, headers=alice)["sessions"]) == 1
        assert sessions(server, headers=bob)["sessions"] == []
