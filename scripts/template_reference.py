"""The reference for chat templates: Python's Jinja2 as set up by Hugging Face transformers, and conversations as input.

Shared by make_template_vectors.py, compare_templates.py and random_templates.py. Needs transformers and jinja2 (PyPI).
"""
import copy
import datetime
import json
import os
import subprocess
import time

os.environ["TZ"] = "UTC"
time.tzset()

from transformers.utils.chat_template_utils import _compile_jinja_template  # noqa: E402

NOW = 1735732799  # 2025-01-01 11:59:59 UTC: the result of strftime_now()


def reference_render(template, context):
    """Python's result: {"text": ...}, or {"error": ..., "raised": whether by raise_exception}."""
    try:
        compiled = _compile_jinja_template(template)
        now = datetime.datetime.fromtimestamp(NOW)
        compiled.environment.globals["strftime_now"] = lambda format: now.strftime(format)
        text = compiled.render(**copy.deepcopy(context))
        text.encode("utf-8")
        return {"text": text}
    except RecursionError as error:
        return {"error": f"RecursionError: {error}", "raised": False}
    except Exception as error:  # millrace must refuse whatever Python raises for
        return {"error": f"{type(error).__name__}: {error}", "raised": type(error).__name__ == "TemplateError"}


class Renderer:
    """millrace's side: the render_template program of the tests, one request per line."""

    def __init__(self, program):
        env = dict(os.environ, TZ="UTC")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    def render(self, template, context):
        request = json.dumps({"template": template, "context": context, "now": NOW})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the renderer died (status {self.process.wait()}) on: {request[:2000]}")
        return json.loads(answer)


def agree(expected, actual):
    if "text" in expected:
        return actual.get("text") == expected["text"]
    return "error" in actual and (actual["kind"] == "usage") == expected["raised"]


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather now, in a \"city\" & its <surroundings>.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 0, "maximum": 18446744073709551615},
                "wind": {"type": "boolean"},
                "places": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
                },
            },
            "required": ["city"],
        },
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.\nReturns the sum.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
        "return": {"type": "number", "description": "The sum."},
    },
}
NOTHING = {"type": "function", "function": {"name": "ping", "description": "Ping.", "parameters": {}}}


def user(content="Why is the sky blue?"):
    return {"role": "user", "content": content}


def system(content="You are a helpful assistant."):
    return {"role": "system", "content": content}


def assistant(content="Rayleigh scattering.", **more):
    return {"role": "assistant", "content": content, **more}


def tool_call(name, arguments, id="call12345"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_result(content, id="call12345", name="get_weather"):
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


def parts(*items):
    return [{"type": "text", "text": i} if isinstance(i, str) else i for i in items]


def conversations():
    """name -> variables, without the special tokens."""
    dict_call = tool_call("get_weather", {"city": "Zürich", "days": 3, "wind": True, "places": [{"lat": 1.5}], "unit": None})
    text_call = tool_call("get_weather", json.dumps({"city": "Paris", "days": 2}))
    add_call = tool_call("add", {"a": 1, "b": 2.5}, id="call99999")
    rounds = {
        "user": [user()],
        "system_user": [system(), user()],
        "two_turns": [system(), user("Hi"), assistant("  Hello!\n"), user(" How are you?  ")],
        "ends_with_assistant": [user("Hi"), assistant("Hello!")],
        "unicode": [system("Du bist höflich. 你好"), user("emoji 😀 \"quotes\" <tags> & 'single'\ttab"), assistant("Ünïcödé\n\nline"), user("{{ x }} {% y %}")],
        "empty_content": [system(""), user("")],
        "parts": [system(parts("Be brief.")) , user(parts("What is this?", " And that?"))],
        "image": [user(parts({"type": "image"}, "What is in the picture?")), assistant(parts("A cat.")), user(parts("Sure?", {"type": "image", "image": "x.png"}))],
        "reasoning": [user("1+1?"), assistant("2", reasoning_content="One and one\nis two."), user("And 2+2?"), assistant("4", reasoning_content="Two more."), user("Thanks")],
        "think_tags": [user("1+1?"), assistant("<think>\nOne and one\n</think>\n\n2"), user("And 2+2?")],
        "wrong_order": [user("a"), user("b"), assistant("c"), assistant("d")],
        "system_later": [user("a"), assistant("b"), system("Now be rude."), user("c")],
        "developer": [{"role": "developer", "content": "Answer in French."}, user("Hello")],
        "tool_dict": [system(), user("Weather?"), assistant("", tool_calls=[dict_call]), tool_result('{"temp": 21, "unit": "C"}'), assistant("21 degrees."), user("Thanks")],
        "tool_text": [user("Weather?"), assistant("Let me see.", tool_calls=[text_call]), tool_result("sunny"), ],
        "tool_none_content": [user("Weather?"), assistant(None, tool_calls=[dict_call]), tool_result({"temp": 21, "ok": True})],
        "tool_parallel": [user("Both"), assistant("", tool_calls=[dict_call, add_call]), tool_result("sunny"), tool_result("3.5", id="call99999", name="add"), assistant("Sunny, and 3.5.")],
        "tool_thinking": [user("Weather?"), assistant("", reasoning_content="I should call.", tool_calls=[dict_call]), tool_result("rain"), assistant("It rains.", reasoning_content="Done.")],
        "tool_parts": [user(parts("Weather?")), assistant(parts("Calling."), tool_calls=[dict_call]), tool_result(parts("sunny", " and warm"))],
        "tool_result_first": [tool_result("orphan"), user("hm")],
        "thinking_field": [user("1+1?"), assistant("2", thinking="One and one."), user("ok")],
        "missing_content": [user("x"), {"role": "assistant", "tool_calls": [dict_call]}, tool_result("y")],
        "no_messages": [],
        "unknown_role": [{"role": "narrator", "content": "It was dark."}, user("Go on")],
    }
    variants = {
        "plain": {},
        "prompt": {"add_generation_prompt": True},
        "tools": {"tools": [WEATHER, ADD, NOTHING], "add_generation_prompt": True},
        "no_tools": {"tools": None, "add_generation_prompt": True, "documents": None},
        "empty_tools": {"tools": [], "add_generation_prompt": False},
        "bare_tools": {"tools": [WEATHER["function"]], "add_generation_prompt": True},
        "thinking_on": {"enable_thinking": True, "thinking": True, "reasoning": True, "add_generation_prompt": True, "reasoning_effort": "high", "preserve_thinking": True},
        "thinking_off": {"enable_thinking": False, "thinking": False, "add_generation_prompt": True, "reasoning_effort": "low", "thinking_budget": 512, "clear_thinking": False},
        "continue": {"continue_final_message": True, "add_generation_prompt": False, "date_string": "26 Jul 2024", "tools_in_user_message": False, "tools": [ADD], "custom_tools": None},
        "documents": {"documents": [{"doc_id": 0, "title": "Sky", "text": "It is blue."}, {"title": "Sea", "text": "It is too.", "tags": ["a", "b"]}], "add_generation_prompt": True, "citation_mode": "fast", "builtin_tools": ["browser", "python"], "model_identity": "You are X.", "xml_tools": [ADD], "python_tools": [WEATHER]},
    }
    result = {}
    for round_name, messages in rounds.items():
        for variant_name, variables in variants.items():
            result[f"{round_name}/{variant_name}"] = {"messages": messages, **variables}
    return result


SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
