"""Structured answers and tool calls through the API. The model is random, so only the grammar can make an answer valid."""

import json
import re

import openai
import pytest

from serving import Server
from tiny_model import TEMPLATE, token_id, write_tiny_model

CHAT = [{"role": "user", "content": "Go."}]
POINT = {"type": "object", "additionalProperties": False, "required": ["x", "kind"],
         "properties": {"x": {"type": "integer", "minimum": -50, "maximum": 50}, "kind": {"enum": ["near", "far"]}}}
TOOLS = [{"type": "function", "function": {"name": "move", "description": "Moves.", "parameters": POINT}},
         {"type": "function", "function": {"name": "wait", "parameters": {
             "type": "object", "properties": {"s": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["s"],
             "additionalProperties": False}}}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)


def ask(client, seed=0, **kwargs):
    return client.chat.completions.create(model="tiny", messages=CHAT, temperature=1, seed=seed, max_tokens=300, **kwargs)


def check_point(value):
    assert set(value) == {"x", "kind"} and -50 <= value["x"] <= 50 and isinstance(value["x"], int) and value["kind"] in ("near", "far")


@pytest.mark.parametrize("seed", range(4))
def test_json_schema(client, seed):
    form = {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT, "strict": True}}
    answer = ask(client, seed, response_format=form).choices[0]
    assert answer.finish_reason == "stop"
    check_point(json.loads(answer.message.content))
    several = ask(client, seed, response_format=form, n=3)
    for choice in several.choices:
        check_point(json.loads(choice.message.content))


def test_json_schema_streams(client):
    form = {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT}}
    text = "".join(c.choices[0].delta.content or "" for c in ask(client, response_format=form, stream=True))
    check_point(json.loads(text))


def test_json_object(client):
    answer = ask(client, response_format={"type": "json_object"}).choices[0]
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.message.content), dict)
    else:
        assert answer.message.content.lstrip().startswith("{")


@pytest.mark.parametrize("extra, pattern", [
    ({"response_format": {"type": "regex", "regex": "[a-c]{3}-[0-9]{2}"}}, "[a-c]{3}-[0-9]{2}"),
    ({"response_format": {"type": "grammar", "grammar": 'root ::= "<" word ">"\nword ::= [a-z] [a-z]'}}, "<[a-z]{2}>"),
    ({"structured_outputs": {"regex": "x+y"}, "max_tokens": 40}, "x+y?"),
    ({"structured_outputs": {"choice": ["yes", "no", "may\"be"]}}, 'yes|no|may"be'),
    ({"guided_regex": "[a-c]{3}"}, "[a-c]{3}"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"guided_grammar": 'root ::= "a" | "b"'}, "a|b"),
    ({"guided_json": {"enum": [1, 2]}}, "1|2"),
    ({"response_format": {"type": "json_object", "schema": {"properties": {"a": {"enum": [7]}}, "required": ["a"]}}}, r'\{\s*"a":\s*7\s*\}'),
])
def test_other_forms(server, extra, pattern):
    status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "temperature": 1, "seed": 3, "max_tokens": 100, **extra})
    assert status == 200, body
    assert re.fullmatch(pattern, body["choices"][0]["message"]["content"]), body["choices"][0]


def test_a_form_that_the_vocabulary_cannot_write_is_the_requests_fault(client):
    """The tiny vocabulary has no byte tokens."""
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, extra_body={"response_format": {"type": "regex", "regex": "\U000fc6ab"}})
    assert refused.value.code == "not_in_form"


def test_completions_take_forms_too(server):
    status, _, body = server.post("/v1/completions", {
        "prompt": "Go.", "max_tokens": 100, "structured_outputs": {"json": POINT}, "temperature": 1, "seed": 1})
    assert status == 200
    check_point(json.loads(body["choices"][0]["text"]))


@pytest.mark.parametrize("path, prompt", [("/v1/chat/completions", {"messages": CHAT}), ("/v1/completions", {"prompt": "Go."})])
@pytest.mark.parametrize("field, value", [("ignore_eos", True), ("min_tokens", 5)])
def test_a_form_says_itself_where_it_ends(server, path, prompt, field, value):
    form = {"response_format": {"type": "regex", "regex": "[a-c]{3}"}, "max_tokens": 10}
    status, _, body = server.post(path, {**prompt, **form, field: value})
    assert status == 400 and body["error"]["param"] == field, body
    status, _, body = server.post(path, {**prompt, "max_tokens": 10, field: value})
    assert status == 200 and body["usage"]["completion_tokens"] >= 5, body


@pytest.mark.parametrize("form", [
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no-such-type"}}},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(?=a)b"}}},
    {"type": "regex", "regex": "(unclosed"},
    {"type": "grammar", "grammar": "this is no grammar"},
])
def test_what_cannot_be_enforced_is_refused(server, form):
    status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "response_format": form})
    assert status == 400 and body["error"]["message"], body


def test_two_forms_are_refused(server):
    two = {"regex": "a", "choice": ["a"]}
    for form, outputs, named in (({"type": "json_object"}, {"regex": "a"}, True), (None, two, False)):
        status, _, refused = server.post("/v1/chat/completions", {"messages": CHAT, "response_format": form, "structured_outputs": outputs})
        assert status == 400 and ("response_format" in refused["error"]["message"]) == named


def check_call(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "move":
        check_point(arguments)
    else:
        assert call.function.name == "wait" and 0 <= arguments["s"] <= 9


@pytest.mark.parametrize("seed", range(3))
def test_required_tool(client, seed):
    choice = ask(client, seed, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert len(choice.message.tool_calls) == 1
    check_call(choice.message.tool_calls[0])


def test_named_tool_streamed(client):
    choice = {"type": "function", "function": {"name": "wait"}}
    calls, finish = {}, None
    for chunk in ask(client, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, stream=True):
        finish = chunk.choices[0].finish_reason or finish
        for delta in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(delta.index, {"id": delta.id, "name": delta.function.name, "arguments": ""})
            call["arguments"] += delta.function.arguments or ""
    assert finish == "tool_calls" and len(calls) == 1
    assert calls[0]["id"] and calls[0]["name"] == "wait" and 0 <= json.loads(calls[0]["arguments"])["s"] <= 9


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", range(1, 8))
def test_a_call_that_is_cut_is_no_content(server, limit, stream):
    ask = {"messages": CHAT, "tools": TOOLS, "tool_choice": "required", "max_tokens": limit, "temperature": 0, "stream": stream}
    status, _, body = server.post("/v1/chat/completions", ask)
    assert status == 200
    if stream:
        chunks = [json.loads(line[6:]) for line in body.decode().split("\n") if line.startswith("data: {")]
        assert not any(c["choices"][0]["delta"].get("content") for c in chunks) and chunks[-1]["choices"][0]["finish_reason"] == "length"
    else:
        assert not body["choices"][0]["message"]["content"] and body["choices"][0]["finish_reason"] == "length"


FORM = {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT}}


def check_call_or_form(choice):
    calls = choice["message"].get("tool_calls")
    if calls:
        assert not choice["message"]["content"] and choice["finish_reason"] == "tool_calls"
        for call in calls:
            assert call["function"]["name"] in ("move", "wait") and isinstance(json.loads(call["function"]["arguments"]), dict)
        return "calls"
    check_point(json.loads(choice["message"]["content"]))
    return "form"


@pytest.mark.parametrize("template, opens", [(TEMPLATE, "<"), (TEMPLATE + "{# [TOOL_CALLS] #}", "["), (TEMPLATE + "{# <|python_tag|> #}", None)])
def test_tools_beside_a_form(tmp_path, template, opens):
    """The answer is calls or follows the form; a bias for the first character of calls decides. Calls of Llama 3 begin as JSON does."""
    with Server(write_tiny_model(tmp_path / "both.gguf", template=template)) as server:
        met = set()
        for seed in range(6):
            for bias in (100, -100) if opens else (0,):
                ask = {"messages": CHAT, "tools": TOOLS, "response_format": FORM, "parallel_tool_calls": False, "temperature": 1, "seed": seed,
                       "max_tokens": 500, "logit_bias": {str(token_id(opens or "{")): bias}}
                status, _, body = server.post("/v1/chat/completions", ask)
                assert status == 200, body
                if body["choices"][0]["finish_reason"] != "length":
                    met.add((bias, check_call_or_form(body["choices"][0])))
        assert met == {(100, "calls"), (-100, "form")} if opens else met
        status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "tools": TOOLS, "tool_choice": "required", "response_format": FORM,
                                                               "max_tokens": 500, "temperature": 0})
        assert body["choices"][0]["message"]["tool_calls"], body
        status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "tools": TOOLS, "tool_choice": "none", "response_format": FORM,
                                                               "max_tokens": 500, "temperature": 0})
        check_point(json.loads(body["choices"][0]["message"]["content"]))


def test_functions_in_the_older_form(client):
    functions = [t["function"] for t in TOOLS]
    choice = ask(client, functions=functions, function_call={"name": "wait"}).choices[0]
    assert choice.finish_reason == "function_call" and choice.message.tool_calls is None
    assert choice.message.function_call.name == "wait" and 0 <= json.loads(choice.message.function_call.arguments)["s"] <= 9
    name = arguments = ""
    for chunk in ask(client, functions=functions, function_call={"name": "wait"}, stream=True):
        delta, finish = chunk.choices[0].delta.function_call, chunk.choices[0].finish_reason
        name += delta.name or "" if delta else ""
        arguments += delta.arguments or "" if delta else ""
    assert (name, arguments, finish) == ("wait", choice.message.function_call.arguments, "function_call")
    history = CHAT + [{"role": "assistant", "content": None, "function_call": {"name": "wait", "arguments": '{"s": 1}'}},
                      {"role": "function", "name": "wait", "content": "done"}]
    assert client.chat.completions.create(model="tiny", messages=history, functions=functions, max_tokens=3).usage.completion_tokens == 3


def test_tools_and_history(client):
    first = ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).choices[0].message
    messages = CHAT + [first.model_dump(), {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "done"}]
    again = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, max_tokens=5, temperature=0)
    assert again.usage.completion_tokens == 5
    none = client.chat.completions.create(model="tiny", messages=CHAT, tools=TOOLS, tool_choice="none", max_tokens=5, temperature=0)
    plain = client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=5, temperature=0)
    assert none.choices[0].message.content == plain.choices[0].message.content


def test_bad_tool_requests(server):
    named = {"type": "function", "function": {"name": "fly"}}
    for change in ({"tool_choice": named, "tools": TOOLS}, {"tool_choice": "required"}, {"tools": TOOLS + TOOLS[:1]},
                   {"tools": [{"type": "function", "function": {"name": "a b"}}]}):
        status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, **change})
        assert status == 400, (change, body)


def test_a_limit_of_the_reasoning_is_no_form(tmp_path):
    template = TEMPLATE.replace("assistant\n", "assistant\n{% if enable_thinking is not false %}<think>\n{% endif %}") + "{# </think> #}"
    with Server(write_tiny_model(tmp_path / "thinker.gguf", template=template)) as server:
        for limit in ({"thinking_budget": 5}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}):
            for end in ({"ignore_eos": True}, {"min_tokens": 40}):
                status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 40, "temperature": 1, "seed": 1, **limit, **end})
                assert (status, body.get("usage", {}).get("completion_tokens")) == (200, 40), body


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_reasoning_ends_where_a_call_begins(tmp_path, choice):
    template = "{% if tools %}<tool_call>{% endif %}" + TEMPLATE.replace("assistant\n", "assistant\n<think>\n") + "{# </think> #}"
    with Server(write_tiny_model(tmp_path / "thinks.gguf", template=template)) as server:
        ask = {"messages": CHAT, "tools": TOOLS, "tool_choice": choice, "thinking_budget": 5, "temperature": 0, "max_tokens": 100, "logprobs": True}
        status, _, body = server.post("/v1/chat/completions", ask)
        assert status == 200, body
        said = "".join(one["token"] for one in body["choices"][0]["logprobs"]["content"])  # one token per character
        reasoning = re.match(r".*?</think>\s*", said, re.DOTALL)[0]
        assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(reasoning), said
        assert len(body["choices"][0]["message"]["reasoning_content"]) <= 5


def test_strict_tools_that_need_not_be_called(tmp_path):
    """The template makes this a Llama 3 model, where an answer that begins with a brace is a call: a bias for the brace opens one."""
    strict = [{"type": "function", "function": {**t["function"], "strict": True}} for t in TOOLS]
    with Server(write_tiny_model(tmp_path / "llama.gguf", template=TEMPLATE + "{# <|python_tag|> #}")) as server:
        def answer(tools, **extra):
            status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "tools": tools, "temperature": 1, "max_tokens": 200, **extra})
            assert status == 200, body
            return body["choices"][0]

        brace = {"logit_bias": {str(token_id("{")): 100}}
        for seed in range(4):
            choice = answer(strict, seed=seed, **brace)
            assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
            call = choice["message"]["tool_calls"][0]["function"]
            if call["name"] == "move":
                check_point(json.loads(call["arguments"]))
            else:
                assert call["name"] == "wait" and 0 <= json.loads(call["arguments"])["s"] <= 9
        assert answer(TOOLS, seed=0, **brace)["message"]["content"].startswith("{{{")  # without strict tools no grammar applies
        no_brace = {"logit_bias": {str(token_id("{")): -100}}
        assert answer(strict, seed=0, **no_brace)["message"]["content"]
        bad = [{"type": "function", "function": {"name": "a", "strict": True, "parameters": {"type": "no-such-type"}}}]
        status, _, body = server.post("/v1/chat/completions", {"messages": CHAT, "tools": bad})
        assert status == 400 and 'tool "a"' in body["error"]["message"], body


def test_responses_call_tools_or_follow_a_form(client):
    tools = [{"type": "function", "name": t["function"]["name"], "parameters": t["function"]["parameters"]} for t in TOOLS]
    form = {"format": {"type": "json_schema", "name": "point", "schema": POINT}}
    made = client.responses.create(model="tiny", input="Go.", tools=tools, text=form, temperature=1, max_output_tokens=500)
    kinds = {item.type for item in made.output}
    assert kinds in ({"message"}, {"function_call"})
    if kinds == {"message"} and made.status == "completed":
        check_point(json.loads(made.output_text))


def test_responses_call_tools(client):
    tools = [{"type": "function", "name": t["function"]["name"], "parameters": t["function"]["parameters"], "strict": True} for t in TOOLS]
    made = client.responses.create(model="tiny", input="Go.", tools=tools, tool_choice="required", parallel_tool_calls=False,
                                   temperature=1, max_output_tokens=300)
    assert made.status == "completed"
    call = made.output[0]
    assert call.type == "function_call" and call.name in ("move", "wait") and isinstance(json.loads(call.arguments), dict)
    form = {"format": {"type": "json_schema", "name": "point", "schema": POINT, "strict": True}}
    check_point(json.loads(client.responses.create(model="tiny", input="Go.", text=form, max_output_tokens=300).output_text))
