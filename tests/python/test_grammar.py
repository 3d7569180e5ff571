"""Random answers within the masks of schemas, judged by someone else: the jsonschema package."""

import json
import os
import random
import re
import subprocess

import jsonschema
import pytest

from conftest import BUILD

TOOL = BUILD / "tests" / "sampling" / "grammar" / "grammar_tool"

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130}}, "required": ["name", "age"],
     "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25}, "minProperties": 1, "maxProperties": 4},
    {"type": "array", "items": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "uuid"}, {"type": "null"}]}, "maxItems": 5},
    {"$defs": {"person": {"type": "object", "properties": {"first": {"type": "string", "minLength": 1, "maxLength": 5}, "kids": {"type": "array", "items": {"$ref": "#/$defs/person"}, "maxItems": 2}},
                          "required": ["first"]}}, "$ref": "#/$defs/person"},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}}, "required": ["kind", "r"], "additionalProperties": False},
               {"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "number"}}, "required": ["kind", "a"], "additionalProperties": False}]},
    {"type": "object", "patternProperties": {"^x-[a-z]{1,8}$": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"enum": ["a", "b", "c"]}, "additionalProperties": {"type": "integer", "multipleOf": 3}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "number", "minimum": 1}}}, {"properties": {"a": {"maximum": 3}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}]},
    {"type": "array", "prefixItems": [{"const": "point"}, {"type": "number"}, {"type": "number"}], "items": False, "minItems": 3},
    {"type": ["string", "null", "integer"], "minLength": 2, "maximum": 7},
    {"type": "string", "pattern": "^(\\d{3}-)?[A-F]+\\.(png|jpe?g)$"},
    {"type": "string", "pattern": "^colou?r \"\\\\w+\""},
    {"properties": {"q\"uote\\": {"type": "null"}, "é": {"type": "boolean"}}, "required": ["q\"uote\\"], "additionalProperties": {"type": "integer"}},
    {"anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}], "type": "object"},
    {"type": "integer", "exclusiveMinimum": -1000, "exclusiveMaximum": -998}, {"type": "number", "minimum": 0.001, "maximum": 0.002}, {}, True,
]


class Walker:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, kind, text, seed, count):
        self.process.stdin.write(json.dumps({"kind": kind, "text": text, "seed": seed, "count": count}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the walk ended with {self.process.wait()} on {text}"
        return json.loads(line)


@pytest.fixture(scope="module")
def walker():
    walker = Walker()
    yield walker
    walker.process.stdin.close()
    walker.process.wait()


def judge(walker, schema, seed, count):
    """None: refused. Else how many answers were valid: all of them."""
    outcome = walker.ask("schema", json.dumps(schema), seed, count)
    if "error" in outcome:
        return None
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for text in outcome["answers"]:
        value = json.loads(text)
        errors = [e.message for e in validator.iter_errors(value)]
        assert not errors, (seed, schema, text, errors)
    return len(outcome["answers"])


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_answers_validate(walker, schema):
    seed = random.SystemRandom().randrange(1 << 32)
    assert judge(walker, schema, seed, 40) > 0, seed


class RandomSchema:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def any(self, depth):
        r = self.random
        kinds = [self.string, self.number, self.const, self.simple]
        if depth > 0:
            kinds += [self.object] * 3 + [self.array, self.any_of, self.all_of, self.one_of]
        return r.choice(kinds)(depth)

    def some(self, **keywords):
        return {k: v for k, v in keywords.items() if self.random.random() < 0.5}

    def string(self, depth):
        r = self.random
        lengths = sorted(r.randrange(8) for _ in range(2))
        extra = r.choice([self.some(minLength=lengths[0], maxLength=lengths[1]), {"pattern": r.choice(["^[a-c]{1,3}$", "x", "^a|b$", "[^\"]\\\\", "^(ab|cd)*$", "é+$"])},
                          {"format": r.choice(["date", "time", "ipv4", "ipv6", "email", "duration", "hostname", "uri"])}, {}])
        return {"type": "string", **extra}

    def number(self, depth):
        r = self.random
        scale = r.choice([1, 10, 1000])
        low, high = sorted(round(r.uniform(-scale, scale), r.randrange(4)) for _ in range(2))
        if r.random() < 0.5:
            return {"type": "integer", **self.some(minimum=int(low), maximum=int(high) + 2), **self.some(multipleOf=r.choice([1, 2, 3]))}
        return {"type": "number", **self.some(minimum=low), **self.some(exclusiveMaximum=high + 1), **self.some(exclusiveMinimum=low - 1)}

    def const(self, depth):
        values = ["a", "b\n\"", 1, 2.5, None, True, {"k": [1]}, []]
        return {"enum": self.random.sample(values, self.random.randrange(1, 4))} if self.random.random() < 0.5 else {"const": self.random.choice(values)}

    def simple(self, depth):
        return {"type": self.random.choice(["boolean", "null", ["string", "null"], ["integer", "boolean"]])}

    def object(self, depth):
        r = self.random
        names = r.sample(["a", "ab", "abc", "b", "x y", "é", "\"", "type"], r.randrange(5))
        schema = {"type": "object", "properties": {name: self.any(depth - 1) for name in names}}
        if r.random() < 0.7:
            schema["required"] = r.sample(names, r.randrange(len(names) + 1))
        if r.random() < 0.4:
            schema["additionalProperties"] = r.choice([True, False, self.any(depth - 1)])
        schema.update(self.some(maxProperties=r.randrange(1, 5)) if r.random() < 0.3 else {})
        return schema

    def array(self, depth):
        r = self.random
        low, high = sorted(r.randrange(4) for _ in range(2))
        schema = {"type": "array", **self.some(items=self.any(depth - 1), minItems=low, maxItems=high)}
        if r.random() < 0.3:
            schema["prefixItems"] = [self.any(depth - 1) for _ in range(r.randrange(1, 3))]
        return schema

    def any_of(self, depth):
        return {"anyOf": [self.any(depth - 1) for _ in range(self.random.randrange(1, 4))], **(self.some(type="object") if self.random.random() < 0.2 else {})}

    def one_of(self, depth):
        return {"oneOf": [self.any(depth - 1) for _ in range(self.random.randrange(1, 3))]}

    def all_of(self, depth):
        return {"allOf": [self.any(depth - 1) for _ in range(self.random.randrange(1, 3))]}


def test_random_schemas(walker):
    """Most are accepted, and of those every answer validates."""
    first = random.SystemRandom().randrange(1 << 32)
    accepted = sum(judge(walker, RandomSchema(first + i).any(3), first + i, 6) is not None for i in range(int(os.environ.get("SCHEMAS", "150"))))
    assert accepted > 60, (first, accepted)


@pytest.mark.parametrize("regex", ["(a|bc)*d", "[A-Z][a-z]{1,5}( [a-z]+)?", "\\d{1,3}(\\.\\d{1,3}){3}", "[^a-z\\s]{2}", "é+|ü"])
def test_regex_answers_match(walker, regex):
    for text in walker.ask("regex", regex, random.SystemRandom().randrange(1 << 32), 40)["answers"]:
        assert re.fullmatch(regex, text, re.ASCII), (regex, text)
