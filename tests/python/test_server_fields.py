"""Every field of every endpoint, one row each: a value with a visible effect, and values that must be refused."""

import json
import math

import pytest

CHAT, TEXT, RESPONSES, EMBED, TOKENIZE, DETOKENIZE = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize", "/detokenize")
MESSAGES = [{"role": "user", "content": "Say hello."}]
BASE = {
    CHAT: {"messages": MESSAGES, "max_tokens": 12, "temperature": 0},
    TEXT: {"prompt": "Say hello.", "max_tokens": 12, "temperature": 0},
    RESPONSES: {"input": "Say hello.", "max_output_tokens": 12, "temperature": 0},
    EMBED: {"input": "Say hello."},
    TOKENIZE: {"prompt": "ab"},
    DETOKENIZE: {"tokens": [40, 41]},
}
TOOL = {"name": "look", "parameters": {"type": "object", "properties": {"up": {"type": "boolean"}}, "required": ["up"], "additionalProperties": False}}
TOOLS = [{"type": "function", "function": TOOL}]
FLAT_TOOLS = [{"type": "function", **TOOL}]
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
WORDS, TYPE, LEAST, MOST = "invalid_value", "invalid_type", "below_min_value", "above_max_value"


def text(answer):
    if "output" in answer:
        return "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"] or ""


def called(answer):
    if "output" in answer:
        return json.loads(next(item for item in answer["output"] if item["type"] == "function_call")["arguments"])
    return json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])


def same(answer, plain):
    return text(answer) == text(plain)


def other(answer, plain):
    return text(answer) != text(plain)


def is_a_form(answer, plain):
    return set(json.loads(text(answer))) == {"ok"}


def counts(number):
    return lambda answer, plain: answer["usage"].get("completion_tokens", answer["usage"].get("output_tokens")) == number


def calls_tool(answer, plain):
    return isinstance(called(answer)["up"], bool)


def has_logprobs(answer, plain):
    logprobs = answer["choices"][0]["logprobs"]
    return len(logprobs["content"] if "content" in logprobs else logprobs["token_logprobs"]) == 12


# Shared by sampling endpoints: field, required other fields, visible effect, refused values with their code.
SAMPLING = [
    ("model", "tiny", {}, same, [(7, TYPE)]),
    ("temperature", 2, {"seed": 3}, other, [(-0.1, LEAST), (2.1, MOST), ("hot", TYPE), (True, TYPE)]),
    ("top_p", 0.0001, {"temperature": 2, "seed": 3}, same, [(-1, LEAST), (1.5, MOST), ([], TYPE)]),
    ("top_k", 1, {"temperature": 2, "seed": 3}, same, [(-2, LEAST), (1.5, TYPE)]),
    ("min_p", 1, {"temperature": 2, "seed": 3}, same, [(-1, LEAST), (2, MOST)]),
    ("typical_p", 0.5, {"temperature": 2, "seed": 3}, lambda a, p: len(text(a)) == 12, [(0, LEAST), (2, MOST)]),
    ("seed", 7, {"temperature": 2}, lambda a, p: len(text(a)) == 12, [("x", TYPE), (1.5, TYPE), (1 << 64, MOST), (-(1 << 70), LEAST)]),
    ("presence_penalty", 2, {"max_tokens": 64, "ignore_eos": True}, other, [(-3, LEAST), (3, MOST)]),
    ("frequency_penalty", 2, {"max_tokens": 64, "ignore_eos": True}, other, [(-3, LEAST), (3, MOST)]),
    ("repetition_penalty", 5, {"max_tokens": 64, "ignore_eos": True}, other, [(0, LEAST), (11, MOST)]),
    ("logit_bias", {"40": 100}, {}, lambda a, p: len(set(text(a))) == 1, [({"40": 101}, MOST), ({"x": 1}, WORDS), ({"1000000": 1}, WORDS), ([], TYPE)]),
    ("stop", ["zz never", "\x01"], {}, same, [("", None), ([""], None), (["a"] * 17, None), (3, None)]),
    ("stop_token_ids", list(range(5, 90)), {"logit_bias": {"40": 100}, "ignore_eos": True}, lambda a, p: text(a) == "" and counts(1)(a, p),
     [([-1], LEAST), ([1 << 20], WORDS), (["a"], TYPE), (3, TYPE)]),
    ("n", 3, {}, lambda a, p: len(a["choices"]) == 3 and len({json.dumps(c.get("message", c.get("text"))) for c in a["choices"]}) == 1, [(0, LEAST), (129, MOST)]),
    ("ignore_eos", True, {}, counts(12), [("yes", TYPE)]),
    ("min_tokens", 5, {}, lambda a, p: a["usage"]["completion_tokens"] >= 5, [(-1, LEAST), (13, WORDS)]),
    ("max_tokens", 3, {"ignore_eos": True}, counts(3), [(-1, LEAST), (1 << 31, MOST), (2000000, "context_length_exceeded"), ("many", TYPE)]),
    ("user", "me", {}, same, [(1, TYPE)]),
    ("priority", 5, {}, same, [(101, MOST), (-101, LEAST)]),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, {"max_tokens": 100}, is_a_form,
     [({"type": "xml"}, None), ({"type": "json_schema"}, None), ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}, None),
      ({"type": "regex", "regex": "("}, None), ({"type": "grammar", "grammar": "nonsense"}, None)]),
    ("response_format", {"type": "json_object", "value": SCHEMA}, {"max_tokens": 100}, is_a_form, []),  # as huggingface_hub sends it
    ("structured_outputs", {"choice": ["yes", "no"]}, {}, lambda a, p: text(a) in ("yes", "no"), [({"regex": "("}, None), ({"xml": "x"}, None), ({"choice": []}, None)]),
    ("guided_json", SCHEMA, {"max_tokens": 100}, is_a_form, [(3, None)]),
    ("guided_regex", "[ab]{3}", {}, lambda a, p: set(text(a)) <= {"a", "b"} and len(text(a)) == 3, [(3, TYPE)]),
    ("guided_choice", ["yes", "no"], {}, lambda a, p: text(a) in ("yes", "no"), [([], None)]),
    ("guided_grammar", 'root ::= "x" "y"', {}, lambda a, p: text(a) == "xy", [(3, TYPE)]),
    ("stream_options", {"include_usage": True}, {}, same, [({"include_obfuscation": True}, "unsupported_value"), ({"x": 1}, "unknown_parameter"), (1, TYPE)]),
    ("continuous_usage_stats", True, {}, same, [(1, TYPE)]),
    ("stream", False, {}, same, [("yes", TYPE)]),
]
HARMLESS = [("store", True, [("yes", TYPE)]), ("metadata", {"a": "b"}, [({"a": 1}, TYPE)]), ("service_tier", "auto", [(1, TYPE)]),
            ("safety_identifier", "x", [(1, TYPE)]), ("prompt_cache_key", "k", [(1, TYPE)]), ("prediction", {"type": "content", "content": "x"}, [(1, TYPE)]),
            ("prompt_cache_retention", "24h", [(1, TYPE)]), ("session_id", "s", [(1, TYPE)]), ("prompt_cache_options", {"ttl": "30m"}, [(1, TYPE)])]
HARMLESS = [(field, value, {}, same, bad) for field, value, bad in HARMLESS]


def unsupported(*fields):
    """Fields of OpenAI's API that must be absent or null."""
    return [(field, None, {}, same, [({}, "unsupported_value")]) for field in fields]


TABLE = {
    CHAT: SAMPLING + HARMLESS + [
        ("messages", [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, {"role": "user", "name": "me", "content": "x"},
                      {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                      {"role": "tool", "tool_call_id": "1", "content": "done"}], {}, other,
         [([], None), ("hello", None), ([{"role": "robot", "content": "x"}], None), ([{"role": "tool", "content": "x"}], None), ([{"role": "user"}], None),
          ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}], None)]),
        ("max_completion_tokens", 3, {"max_tokens": None, "ignore_eos": True}, counts(3), [(0, LEAST), (5, WORDS), (2000000, None)]),
        ("logprobs", True, {"ignore_eos": True}, has_logprobs, [(3, TYPE)]),
        ("top_logprobs", 2, {"logprobs": True}, lambda a, p: len(a["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2, [(21, MOST), (-1, LEAST), (2, WORDS)]),
        ("tools", TOOLS, {"tool_choice": "required", "max_tokens": 100}, calls_tool, [(TOOLS * 2, WORDS), ([{"type": "function"}], None), ([{"type": "custom"}], None),
                                                                                   ([{"type": "function", "function": {"name": "a b"}}], WORDS)]),
        ("tool_choice", {"type": "function", "function": {"name": "look"}}, {"tools": TOOLS, "max_tokens": 100}, calls_tool,
         [("required", WORDS), ("some", None), ({"type": "function", "function": {"name": "gone"}}, WORDS)]),
        ("tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}},
         {"tools": TOOLS + [{"type": "function", "function": {"name": "other"}}], "max_tokens": 100}, calls_tool,
         [({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, None), ({"type": "allowed_tools"}, None)]),
        ("parallel_tool_calls", False, {"tools": TOOLS, "tool_choice": "required", "max_tokens": 200},
         lambda a, p: len(a["choices"][0]["message"]["tool_calls"]) == 1, [("no", TYPE)]),
        ("reasoning_effort", "none", {}, same, [("high", "unsupported_value"), ("huge", None)]),
        ("thinking_budget", None, {}, same, [(5, "unsupported_value"), (-1, LEAST)]),
        ("chat_template_kwargs", {"x": 1}, {}, same, [([], TYPE), ({"messages": []}, WORDS)]),
        ("functions", [TOOL], {"function_call": {"name": "look"}, "max_tokens": 100},
         lambda a, p: isinstance(json.loads(a["choices"][0]["message"]["function_call"]["arguments"])["up"], bool), [([{"description": "x"}], None), (3, TYPE)]),
        ("function_call", "none", {"functions": [TOOL]}, same, [("required", None), ({}, None)]),
        ("verbosity", "low", {}, other, [("loud", None)]),
        ("continue_final_message", True, {"messages": MESSAGES + [{"role": "assistant", "content": "Hel"}]}, other, [(True, WORDS), ("x", TYPE)]),
        ("add_generation_prompt", True, {}, same, [(False, WORDS), ("x", TYPE)]),
        ("modalities", ["text"], {}, same, [(["audio"], None)]),
    ] + unsupported("audio", "web_search_options", "moderation"),
    TEXT: SAMPLING + HARMLESS + [
        ("prompt", [[40, 41], [42]], {}, lambda a, p: [c["index"] for c in a["choices"]] == [0, 1], [([], None), (3, None), ([[]], None), ([[1 << 30]], None), ([1, "a"], None)]),
        ("logprobs", 2, {"ignore_eos": True}, lambda a, p: has_logprobs(a, p) and len(a["choices"][0]["logprobs"]["top_logprobs"][0]) >= 2, [(21, MOST), (True, TYPE)]),
        ("echo", True, {"logprobs": 0, "max_tokens": 1}, lambda a, p: text(a).startswith("Say hello.") and a["choices"][0]["logprobs"]["token_logprobs"][0] is None, [("x", TYPE)]),
        ("best_of", 3, {"temperature": 1, "n": 2}, lambda a, p: len(a["choices"]) == 2, [(0, LEAST)]),
        ("add_special_tokens", False, {}, same, [("x", TYPE)]),
        ("suffix", "", {}, same, [("end", None)]),
    ],
    RESPONSES: [
        ("input", [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
                   {"type": "function_call_output", "call_id": "1", "output": "done"}], {}, other, [([], None), (3, None), ([{"type": "item_reference", "id": "x"}], None)]),
        ("model", "tiny", {}, same, [(7, TYPE)]),
        ("instructions", "Be brief.", {}, lambda a, p: other(a, p) and a["instructions"] == "Be brief.", [(1, TYPE)]),
        ("max_output_tokens", 3, {}, lambda a, p: a["usage"]["output_tokens"] == 3 and a["status"] == "incomplete", [(0, LEAST), (2000000, "context_length_exceeded")]),
        ("temperature", 2, {"top_p": 0.0001}, same, [(3, MOST)]),
        ("top_p", 0.0001, {"temperature": 2}, same, [(3, MOST)]),
        ("top_logprobs", 1, {"include": ["message.output_text.logprobs"]}, lambda a, p: len(a["output"][0]["content"][0]["logprobs"]) > 0, [(21, MOST)]),
        ("include", ["message.output_text.logprobs"], {}, lambda a, p: len(a["output"][0]["content"][0]["logprobs"]) > 0, [(["no_such_thing"], None)]),
        ("stream_options", {"include_obfuscation": True}, {}, same, [({"x": 1}, "unknown_parameter"), (1, TYPE)]),
        ("stream", False, {}, same, [("yes", TYPE)]),
        ("tools", FLAT_TOOLS, {"tool_choice": "required", "max_output_tokens": 100}, calls_tool, [([{"type": "web_search"}], None)]),
        ("tool_choice", {"type": "function", "name": "look"}, {"tools": FLAT_TOOLS, "max_output_tokens": 100}, calls_tool, [("required", WORDS)]),
        ("tool_choice", {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
         {"tools": [*FLAT_TOOLS, {"type": "function", "name": "other"}], "max_output_tokens": 100}, calls_tool, [({"type": "allowed_tools"}, None)]),
        ("parallel_tool_calls", False, {"tools": FLAT_TOOLS, "tool_choice": "required", "max_output_tokens": 200},
         lambda a, p: len([i for i in a["output"] if i["type"] == "function_call"]) == 1, [("no", TYPE)]),
        ("text", {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}, {"max_output_tokens": 100}, is_a_form, [({"format": {"type": "xml"}}, None), ({"verbosity": "loud"}, None)]),
        ("text", {"verbosity": "high"}, {}, lambda a, p: other(a, p) and a["text"]["verbosity"] == "high", []),
        ("reasoning", {"effort": "none", "summary": "auto"}, {}, same, [({"effort": "high"}, None), ({"summary": "long"}, None)]),
        ("truncation", "auto", {}, same, [("some", None)]),
        ("metadata", {"a": "b"}, {}, lambda a, p: a["metadata"] == {"a": "b"}, [({"a": 1}, TYPE)]),
        ("user", "me", {}, same, [(1, TYPE)]),
        ("store", False, {}, lambda a, p: same(a, p) and a["store"] is False, [("x", TYPE)]),
        ("previous_response_id", None, {}, same, [("resp_1", None)]),
        ("background", True, {}, lambda a, p: a["status"] == "in_progress" and a["background"] and a["id"].startswith("resp_"), [("yes", TYPE)]),
        ("top_k", 1, {"temperature": 2}, same, [(-2, LEAST)]),
        ("min_p", 1, {"temperature": 2}, same, [(2, MOST)]),
        ("seed", 7, {}, same, [("x", TYPE)]),
        ("service_tier", "auto", {}, same, [(1, TYPE)]),
        ("safety_identifier", "x", {}, same, [(1, TYPE)]),
        ("prompt_cache_key", "k", {}, same, [(1, TYPE)]),
        ("prompt_cache_retention", "24h", {}, same, [(1, TYPE)]),
        ("prompt_cache_options", {"ttl": "30m"}, {}, same, [(1, TYPE)]),
        ("max_tool_calls", 3, {}, same, [(0, LEAST)]),
    ] + unsupported("conversation", "prompt", "context_management", "moderation"),
    EMBED: [
        ("input", ["a", "b c"], {}, lambda a, p: [d["index"] for d in a["data"]] == [0, 1], [("", None), ([], None), (3, None)]),
        ("model", "tiny", {}, lambda a, p: a == p, [(7, TYPE)]),
        ("encoding_format", "base64", {}, lambda a, p: isinstance(a["data"][0]["embedding"], str), [("hex", None)]),
        ("dimensions", 64, {}, lambda a, p: math.isclose(sum(x * x for x in a["data"][0]["embedding"]), 1, rel_tol=1e-4), [(32, "unsupported_value"), (0, LEAST)]),
        ("user", "me", {}, lambda a, p: a == p, [(1, TYPE)]),
    ],
    TOKENIZE: [
        ("prompt", "abc", {}, lambda a, p: a["count"] == 3, [(1, TYPE)]),
        ("messages", MESSAGES, {"prompt": None}, lambda a, p: a["count"] > 10, [([], None)]),
        ("model", "tiny", {}, lambda a, p: a == p, [(7, TYPE)]),
        ("tools", TOOLS, {"prompt": None, "messages": MESSAGES}, lambda a, p: a["count"] > 50, [([{"type": "x"}], None)]),
        ("chat_template_kwargs", {"x": 1}, {"prompt": None, "messages": MESSAGES}, lambda a, p: a["count"] > 10, [([], TYPE)]),
        ("add_generation_prompt", False, {"prompt": None, "messages": MESSAGES}, lambda a, p: a["count"] == 18, [("x", TYPE)]),
        ("add_special_tokens", False, {}, lambda a, p: a["count"] == 2, [("x", TYPE)]),
        ("return_token_strs", True, {}, lambda a, p: a["token_strs"] == ["a", "b"], [("x", TYPE)]),
    ],
    DETOKENIZE: [
        ("tokens", [42], {}, lambda a, p: len(a["prompt"]) == 1, [([-1], None), ([1 << 30], None), ("x", TYPE)]),
        ("model", "tiny", {}, lambda a, p: a == p, [(7, TYPE)]),
    ],
}
GOOD = [(path, *row[:4]) for path, rows in TABLE.items() for row in rows]
BAD = [(path, row[0], value, code) for path, rows in TABLE.items() for row in rows for value, code in row[4]]


@pytest.fixture(scope="module")
def plain(server):
    """Each endpoint's answer to its minimal request."""
    answers = {path: server.post(path, body) for path, body in BASE.items()}
    assert {status for status, _, _ in answers.values()} == {200}, answers
    return {path: body for path, (_, _, body) in answers.items()}


@pytest.mark.parametrize("path, field, value, more, shows", GOOD, ids=[f"{g[0].rsplit('/')[-1]}-{g[1]}" for g in GOOD])
def test_field_is_honoured(server, plain, path, field, value, more, shows):
    body = {**BASE[path], **more, field: value}
    status, _, answer = server.post(path, {k: v for k, v in body.items() if v is not None or k == field})
    assert status == 200, answer
    assert shows(answer, plain[path]), answer


@pytest.mark.parametrize("path, field, value, code", BAD, ids=[f"{b[0].rsplit('/')[-1]}-{b[1]}-{i}" for i, b in enumerate(BAD)])
def test_field_is_refused(server, path, field, value, code):
    status, headers, answer = server.post(path, {**BASE[path], field: value})
    assert status == 400, answer
    error = answer["error"]
    assert headers["X-Request-Id"] and set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    related = ("messages", "prompt", "input", "max_tokens")  # two fields that do not fit together
    either = path == TOKENIZE and error["param"] is None  # one of two fields is required
    assert either or error["param"].startswith((field, *related)), error
    assert code is None or (error["code"] or "").endswith(code), error


BAD_SCHEMA = {"type": "nonsense"}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": BAD_SCHEMA}}


@pytest.mark.parametrize("path, more, param", [
    (CHAT, {"response_format": JSON_SCHEMA}, "response_format"),
    (CHAT, {"response_format": {"type": "regex", "regex": "("}}, "response_format"),
    (CHAT, {"response_format": {"type": "text"}, "structured_outputs": {"regex": "("}}, "structured_outputs"),
    (CHAT, {"structured_outputs": {"grammar": "root ::="}}, "structured_outputs"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a", "strict": True, "parameters": BAD_SCHEMA}}]}, "tools"),
    (CHAT, {"messages": [{"role": "user", "content": "a" * 3000}]}, "messages"),
    (CHAT, {"reasoning_effort": "low"}, "reasoning_effort"),
    (TEXT, {"response_format": JSON_SCHEMA}, "response_format"),
    (TEXT, {"structured_outputs": {"json": BAD_SCHEMA}}, "structured_outputs"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"prompt": [99999999]}, "prompt"),
    (TEXT, {"prompt": "a" * 3000, "max_tokens": 0, "echo": True, "logprobs": 1}, "prompt"),
    (TEXT, {"prompt": ["a", "a" * 3000], "max_tokens": 0, "echo": True, "logprobs": 1}, "prompt"),
    (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "a", "schema": BAD_SCHEMA}}}, "text.format"),
    (RESPONSES, {"reasoning": {"effort": "low"}}, "reasoning.effort"),
    (RESPONSES, {"input": "a" * 3000}, "input"),
    (RESPONSES, {"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    (EMBED, {"input": ""}, "input"),
    (EMBED, {"input": "a" * 3000}, "input"),
])
def test_errors_found_late_name_their_field(server, path, more, param):
    status, _, answer = server.post(path, {**BASE[path], **more})
    assert status == 400 and answer["error"]["param"] == param, answer
    assert ("context_length_exceeded" == answer["error"]["code"]) == ("a" * 3000 in json.dumps(more)), answer


@pytest.mark.parametrize("path, more, message", [
    (CHAT, {"audio": {"voice": "alloy"}}, "'audio' is not supported"),
    (RESPONSES, {"conversation": "conv_1"}, "'conversation' is not supported: send the whole conversation"),
    (RESPONSES, {"prompt": {"id": "pmpt_1"}}, "'prompt' is not supported: send the text"),
    ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aa"]}]},
     "'messages[0].images' is not supported: this server takes no images"),
    ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "'template' is not supported: the model's own template is used"),
    ("/api/chat", {"messages": MESSAGES, "format": "xml"}, "'format' must be one of: json"),
    (TEXT, {"prompt": [-1]}, "'prompt[0]' must be at least 0"),
    (TEXT, {"prompt": [[3], [-1]]}, "'prompt[1][0]' must be at least 0"),
])
def test_refusals_say_what_is_wrong(server, path, more, message):
    status, _, answer = server.post(path, {**BASE.get(path, {"model": "tiny"}), **more})
    assert status == 400, answer
    error = answer["error"]
    assert (error if isinstance(error, str) else error["message"]) == message


@pytest.mark.parametrize("path, meant", [
    ("/chat/completions", CHAT), ("//v1/chat/completions", CHAT), ("/v1/chat/completions/", CHAT), ("/v1/v1/messages", "/v1/messages"),
    ("/v1//embeddings", EMBED), ("/v1/api/chat", "/api/chat"), ("/v1", None), ("/v1/files", None), ("/v1/chat", None), ("/", "GET"),
])
def test_a_mistyped_address_is_corrected(server, path, meant):
    status, _, answer = server.post(path, {})
    if meant == "GET":
        assert status == 405
        return
    message = answer["error"] if isinstance(answer["error"], str) else answer["error"]["message"]
    assert status == 404 and message == f"there is nothing at {path}" + (f"; did you mean {meant}?" if meant else "")


@pytest.mark.parametrize("field", ["n", "best_of"])
def test_prompts_times_answers_are_bounded(server, field):
    prompts = {"prompt": ["a"] * 2048, "max_tokens": 1, "temperature": 1}
    status, _, body = server.post("/v1/completions", {**prompts, field: 128})
    assert status == 400 and body["error"]["param"] == field, body
    status, _, body = server.post("/v1/completions", {**prompts, "prompt": ["a"] * 32, field: 128})
    assert status == 200 and body["usage"]["completion_tokens"] == 32 * 128


ASKED = {"role": "user", "content": "x"}
CALL = {"role": "assistant", "content": [], "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}
CALLED = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}", "namespace": None, "caller": {"type": "direct"}}


@pytest.mark.parametrize("path, more", [
    (CHAT, {"messages": [ASKED, CALL, {"role": "tool", "tool_call_id": "1", "content": []}]}),
    (CHAT, {"messages": [ASKED, {"role": "assistant", "content": "y", "reasoning": "z", "provider_specific_fields": {"refusal": None}}, ASKED]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}]}),
    (CHAT, {"tools": [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}]}),
    (RESPONSES, {"input": [ASKED, CALLED, {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "done"}]}]}),
    (RESPONSES, {"input": [ASKED, {"role": "assistant", "phase": "final_answer", "content": [{"type": "refusal", "refusal": "no"}]}, ASKED]}),
    (RESPONSES, {"tools": [{**FLAT_TOOLS[0], "defer_loading": False, "allowed_callers": ["direct"], "output_schema": SCHEMA}]}),
    (RESPONSES, {"reasoning": {"context": "auto", "mode": "standard", "effort": None}}),
])
def test_what_clients_send_along(server, path, more):
    """LiteLLM, Agents SDK, huggingface_hub and coding agents add these to histories and tools."""
    status, _, answer = server.post(path, {**BASE[path], **more})
    assert status == 200, answer


def test_a_tool_without_parameters_takes_none(server):
    body = {**BASE[CHAT], "tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "required", "max_tokens": 100}
    assert called(server.post(CHAT, body)[2]) == {}


def test_a_compressed_body_is_refused_by_name(server):
    status, _, answer = server.post(CHAT, BASE[CHAT], headers={"Content-Encoding": "gzip"})
    assert status == 415 and "gzip" in answer["error"]["message"]


def test_every_field_is_in_the_table(server):
    document = server.get("/openapi.json")[2]
    for path, rows in TABLE.items():
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/")[-1]]
        assert set(schema["properties"]) == {row[0] for row in rows}, path


@pytest.mark.parametrize("path", BASE)
def test_unknown_fields_are_refused(server, path):
    status, _, answer = server.post(path, {**BASE[path], "no_such_field": 1})
    assert status == 400 and answer["error"]["code"] == "unknown_parameter" and answer["error"]["param"] == "no_such_field"


@pytest.mark.parametrize("path", BASE)
def test_what_comes_before_the_fields(server, path):
    assert server.post(path, b"{")[0] == 400
    assert server.post(path, b"[]")[0] == 400
    assert server.post(path, b"{}")[0] == 400
    assert server.post(path, BASE[path], headers={"Content-Type": "text/plain"})[0] == 415
    assert server.get(path)[0] == 405
    assert server.post(path, {**BASE[path], "model": "gpt-4"})[0] == 404


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_streams_carry_usage_as_asked(server, path):
    def chunks(**more):
        raw = server.post(path, {**BASE[path], "stream": True, **more})[2].decode()
        events = [line[6:] for line in raw.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    assert all("usage" not in c for c in chunks())
    with_usage = chunks(stream_options={"include_usage": True})
    assert with_usage[-1]["choices"] == [] and with_usage[-1]["usage"]["completion_tokens"] > 0
    assert all(c["usage"] is None for c in with_usage[:-1])
    assert all(c["usage"]["completion_tokens"] > 0 for c in chunks(continuous_usage_stats=True))
    assert all(c["usage"]["completion_tokens"] > 0 for c in chunks(stream_options={"continuous_usage_stats": True}))
