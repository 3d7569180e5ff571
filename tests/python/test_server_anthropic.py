"""Anthropic's protocol through its own client. The model is random, so only the grammar can make calls valid."""

import json

import anthropic
import pytest

from serving import Server
from tiny_model import TEMPLATE, write_tiny_model

ASK = {"model": "tiny", "max_tokens": 12, "messages": [{"role": "user", "content": "Say hello."}], "extra_body": {"temperature": 0}}
TOOL = {"name": "wait", "description": "Waits.", "input_schema": {
    "type": "object", "properties": {"s": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["s"], "additionalProperties": False}}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)


def test_message(client, server):
    made = client.messages.create(**ASK)
    assert made.type == "message" and made.role == "assistant" and made.model == "tiny"
    assert made.stop_reason == "max_tokens" and made.usage.output_tokens == 12
    chat = server.post("/v1/chat/completions", {"messages": ASK["messages"], "max_tokens": 12, "temperature": 0})[2]
    assert made.content[0].text == chat["choices"][0]["message"]["content"]
    assert made.usage.input_tokens + made.usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]


def test_system_and_blocks(client, server):
    blocks = client.messages.create(**{**ASK, "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                                       "messages": [{"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "hello."}]}]})
    chat = server.post("/v1/chat/completions", {"max_tokens": 12, "temperature": 0, "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]})[2]
    assert blocks.content[0].text == chat["choices"][0]["message"]["content"]


def test_stream(client):
    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 12
    types = [event.type for event in client.messages.create(**ASK, stream=True)]
    assert types[0] == "message_start" and types[-2:] == ["message_delta", "message_stop"]
    assert types.count("content_block_start") == types.count("content_block_stop") == 1


def test_a_tool_runner_goes_on_without_a_thread(client, server):
    # It asks for a conversation that the server keeps; the error makes it send the whole conversation instead.
    @anthropic.beta_tool
    def wait(s: int) -> str:
        """Waits.

        Args:
            s: seconds
        """
        return "done"

    runner = client.beta.messages.tool_runner(model="tiny", max_tokens=12, tools=[wait], messages=ASK["messages"])
    assert runner.until_done().usage.output_tokens == 12
    ask = {"max_tokens": 4, "messages": ASK["messages"]}
    status, _, refused = server.post("/v1/messages", {**ask, "thread": {"type": "create"}})
    assert status == 400 and refused["error"]["details"] == {"error_code": "thread_unsupported_request"}
    nothing = dict.fromkeys(["thread", "fallbacks", "fallback_credit_token", "compaction", "billing_policy"])
    assert server.post("/v1/messages", {**ask, **nothing})[0] == 200


def test_stop_sequence(client):
    text = client.messages.create(**ASK).content[0].text
    made = client.messages.create(**ASK, stop_sequences=["no such text", text[5:7]])
    assert made.stop_reason == "stop_sequence" and made.stop_sequence == text[5:7]
    assert text.startswith(made.content[0].text)


def test_tools(client):
    ask = {**ASK, "max_tokens": 100, "extra_body": {"temperature": 1}, "tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    made = client.messages.create(**ask)
    assert made.stop_reason == "tool_use" and len(made.content) == 1
    call = made.content[0]
    assert call.type == "tool_use" and call.name == "wait" and 0 <= call.input["s"] <= 9
    with client.messages.stream(**ask) as stream:
        call = stream.get_final_message().content[0]
    assert call.name == "wait" and 0 <= call.input["s"] <= 9
    named = client.messages.create(**{**ask, "tool_choice": {"type": "tool", "name": "wait"}})
    assert named.content[0].name == "wait"
    history = ASK["messages"] + [{"role": "assistant", "content": [call.model_dump()]},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "done"}]}]
    again = client.messages.create(**{**ASK, "messages": history, "tools": [TOOL]})
    assert again.usage.output_tokens == 12


def test_a_cut_call_is_no_text(client):
    made = client.messages.create(**{**ASK, "max_tokens": 4, "tools": [TOOL], "tool_choice": {"type": "any"}})
    assert made.stop_reason == "max_tokens" and made.content == []


def test_the_assistants_last_message_is_continued(client, server):
    history = ASK["messages"] + [{"role": "assistant", "content": "im"}]
    made = client.messages.create(**{**ASK, "messages": history})
    raw = server.post("/v1/completions", {"max_tokens": 12, "temperature": 0,
                                          "prompt": "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\nim"})[2]
    assert made.content[0].text == raw["choices"][0]["text"]


def test_form(client):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    made = client.messages.create(**{**ASK, "max_tokens": 100}, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert isinstance(json.loads(made.content[0].text)["ok"], bool)


def test_count_tokens(client):
    counted = client.messages.count_tokens(model="tiny", messages=ASK["messages"], system="Be brief.", tools=[TOOL]).input_tokens
    made = client.messages.create(**{**ASK, "max_tokens": 1}, system="Be brief.", tools=[TOOL])
    assert counted == made.usage.input_tokens + made.usage.cache_read_input_tokens
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1024}}  # counted also for a model that cannot
    assert client.messages.count_tokens(model="tiny", messages=ASK["messages"], **thinks).input_tokens > 0


def test_models(client):
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").display_name == "tiny"


def test_errors(client, server):
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.messages.create(**{**ASK, "model": "other"})
    assert refused.value.body["type"] == "error" and refused.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="thinking|reason"):
        client.messages.create(**{**ASK, "max_tokens": 2000}, thinking={"type": "enabled", "budget_tokens": 1024})
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(**{**ASK, "messages": [{"role": "user", "content": "x" * 5000}]})
    status, _, body = server.post("/v1/messages", {"messages": ASK["messages"]})
    assert status == 400 and "max_tokens" in body["error"]["message"] and body["error"]["type"] == "invalid_request_error"
    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]
    assert server.post("/v1/messages", {"max_tokens": 5, "messages": image})[0] == 400


def test_max_tokens_beyond_the_context(client):
    made = client.messages.create(**{**ASK, "max_tokens": 100000, "extra_body": {"temperature": 1}}, timeout=60)
    assert made.stop_reason in ("model_context_window_exceeded", "end_turn")


def test_keys(tiny_chat):
    with Server(tiny_chat, env={"MILLRACE_API_KEYS": "sk-one-long-key-of-a-test"}) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="sk-one-long-key-of-a-test", max_retries=0)
        assert client.messages.create(**ASK).usage.output_tokens == 12
        with pytest.raises(anthropic.AuthenticationError) as refused:
            anthropic.Anthropic(base_url=server.url, api_key="sk-other", max_retries=0).messages.create(**ASK)
        assert refused.value.body["error"]["type"] == "authentication_error"


def test_thinking(tmp_path):
    template = TEMPLATE.replace("assistant\n", "assistant\n{% if enable_thinking is not false %}<think>\n{% endif %}") + "{# </think> #}"
    with Server(write_tiny_model(tmp_path / "thinks.gguf", template=template)) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)
        ask = {**ASK, "model": "thinks", "max_tokens": 40}
        made = client.messages.create(**ask, thinking={"type": "enabled", "budget_tokens": 5})
        assert made.content[0].type == "thinking" and len(made.content[0].thinking) <= 5 and made.content[0].signature
        assert made.content[1].type == "text"
        hidden = client.messages.create(**ask, thinking={"type": "enabled", "budget_tokens": 5, "display": "omitted"})
        assert hidden.content[0].thinking == "" and hidden.content[0].signature and hidden.content[1:] == made.content[1:]
        with client.messages.stream(**ask, thinking={"type": "enabled", "budget_tokens": 5}) as stream:
            streamed = stream.get_final_message()
        assert [b.type for b in streamed.content] == ["thinking", "text"] and streamed.content[0].thinking == made.content[0].thinking
        assert [b.type for b in client.messages.create(**ask).content] == ["text"]


def test_what_coding_agents_send_along(client, server):
    """Adaptive thinking leaves it to the model, which here cannot; edits of earlier reasoning are the template's business."""
    body = {"max_tokens": 4, "messages": [{"role": "user", "content": "x"}], "thinking": {"type": "adaptive"}, "output_config": {"effort": "max"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "mcp_servers": [], "speed": "standard", "container": None,
            "tools": [{"name": "look", "input_schema": {"type": "object"}, "defer_loading": False, "allowed_callers": ["direct"]}]}
    status, _, answer = server.post("/v1/messages?beta=true", body)
    assert status == 200 and answer["type"] == "message", answer
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    status, _, answer = server.post("/v1/messages", {**body, "context_management": edits})
    assert status == 400 and "context_management.edits[0].type" in answer["error"]["message"], answer
