#!/usr/bin/env python3
"""Renders random templates with millrace and with Python's Jinja2. Run by hand; any difference is a bug.

Usage: scripts/random_templates.py --renderer build/release/tests/text/jinja/render_template [--count N] [--seed S]
       scripts/random_templates.py --write tests/data/templates/random_cases.json --count 400 --seed 7

The first form compares, and shrinks templates that differ; the second writes cases with Python's answers.
"""
import argparse
import json
import random
import re
import sys

from template_reference import NOW, Renderer, agree, reference_render

CONTEXT = {
    "s": "Hello World", "t": "  ünï  cödé 😀\n", "e": "", "w": "a,b,,c", "html": "<b>\"x\" & 'y'</b>", "num": "42", "neg": "-7.50",
    "n": 7, "m": -3, "z": 0, "big": 18446744073709551615, "f": 2.5, "g": -0.125, "h": 1e16, "yes": True, "no": False, "nil": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "lm": [1, "x", None, 2.5, True], "el": [], "ll": [[1, 2], [3], []],
    "d": {"a": 1, "b": "two", "items": [1], "c": {"x": [10, 20]}}, "ed": {},
    "users": [{"name": "bob", "age": 30, "tags": ["x", "y"]}, {"name": "Amy", "age": 25, "tags": []},
              {"name": "cid", "age": 30, "city": "Ulm"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]}, {"v": 5, "kids": []}],
}
NAMES = {
    "str": ["s", "t", "e", "w", "html", "num", "neg", "d.b", "users[0].name", "ls[1]"],
    "int": ["n", "m", "z", "big", "d.a", "users[1].age", "l[0]"],
    "float": ["f", "g", "h"],
    "bool": ["yes", "no"],
    "list": ["l", "ls", "lm", "el", "ll", "users", "d['items']", "users[0].tags", "tree"],
    "dict": ["d", "ed", "users[0]", "d.c"],
    "any": ["nil", "missing", "d.missing", "users[9]", "s", "n", "l", "d"],
}
TYPES = ["str", "int", "float", "bool", "list", "dict", "any"]
UNSTABLE = re.compile(r"0x[0-9a-f]+|<generator|<function|<built-in|<bound|object at|<class|iterator|<Macro|<LoopContext")


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.locals = []

    def pick(self, *choices):
        return self.r.choice(choices)

    def chance(self, p):
        return self.r.random() < p

    def literal(self, type):
        r = self.r
        if type == "str":
            return self.pick("''", "'a'", "'b'", "'Hello'", "' x '", "'%s'", "'%d|%5.2f'", "'{}-{}'", "'ß'", "'\\n'", "'a' 'b'", "\"it's\"",
                             "'o'", "'l'", "'1'", "'0x1f'", "'3.9'", "'a-b c'", "'ΣΑΣ'", "'<i>'", "'\\u00e9'", "'key'", "'name'")
        if type == "int":
            return str(self.pick(0, 1, 2, 3, 5, 10, -1, -2, 100, 255, 1000, "0x10", "1_000"))
        if type == "float":
            return self.pick("0.5", "1.0", "2.675", "1e3", "-1.5", "1e-7", "123456789.125", "0.1")
        if type == "bool":
            return self.pick("true", "false", "True", "False")
        if type == "list":
            return self.pick("[]", "[1, 2, 3]", "['x', 'y']", "(1, 2)", "(1,)", "()", "[none, true]", "[[1, 2], [3, 4]]", "[3, 1, 2, 1]", "range(4)", "range(5, 0, -2)")
        if type == "dict":
            return self.pick("{}", "{'a': 1}", "{'k': [1, 2], 'j': none}", "{1: 'x', true: 'y', 2.0: 'z'}", "dict(a=1, b=2)", "{'b': 1, 'A': 2, 'c': 0}")
        return self.pick("none", "None", "missing")

    def expr(self, type=None, depth=3):
        if type is None or self.chance(0.01):
            type = self.r.choice(TYPES[:-1] if self.chance(0.7) else TYPES)
        if depth <= 0:
            if self.locals and self.chance(0.3):
                return self.r.choice(self.locals)
            return self.literal(type) if self.chance(0.5) else self.r.choice(NAMES[type])
        roll = self.r.random()
        if roll < 0.15:
            return self.literal(type)
        if roll < 0.3:
            return self.r.choice(NAMES[type]) if not self.locals or self.chance(0.6) else self.r.choice(self.locals)
        if roll < 0.4:
            return f"({self.expr(type, depth - 1)} if {self.expr('bool', depth - 1)}{' else ' + self.expr(type, depth - 1) if self.chance(0.8) else ''})"
        if roll < 0.45:
            return f"({self.expr(type, depth - 1)} {self.pick('or', 'and')} {self.expr(type, depth - 1)})"
        made = getattr(self, "make_" + type)(depth - 1)
        return f"({made})" if self.chance(0.9) else made

    def make_any(self, d):
        if self.chance(0.4):
            return f"(({self.make_any(d)})|default({self.expr(None, d)}))"
        return self.pick(
            lambda: f"{self.expr('list', d)}[{self.expr('int', d)}]",
            lambda: f"{self.expr('dict', d)}[{self.expr('str', d)}]",
            lambda: f"{self.expr('dict', d)}.get({self.expr('str', d)}{', ' + self.expr(None, d) if self.chance(0.5) else ''})",
            lambda: f"{self.expr('dict', d)}.{self.pick('a', 'b', 'x', 'name', 'nope')}",
            lambda: f"{self.expr('list', d)}|{self.pick('first', 'last', 'first', 'last', 'min', 'max', 'select(' + repr('number') + ')|sum')}",
            lambda: f"{self.expr('any', d)}|default({self.expr(None, d)}{self.pick('', ', true', ', boolean=true')})",
            lambda: f"{self.expr('list', d)}|{self.pick('min', 'max')}(attribute={self.pick(chr(39) + 'age' + chr(39), '0')})",
        )()

    def make_str(self, d):
        s = lambda: self.expr("str", d)
        i = lambda: self.expr("int", d)
        return self.pick(
            lambda: f"({s()} + {s()})",
            lambda: f"({s()} ~ {self.expr(None, d)} ~ {self.expr(None, d)})",
            lambda: f"({s()} * {self.pick('0', '1', '2', '3', '-1')})",
            lambda: f"{s()}[{self.pick('0', '1', '-1', '2', i())}]",
            lambda: f"{s()}[{self.slice(d)}]",
            lambda: f"{s()}.{self.pick('upper', 'lower', 'title', 'capitalize', 'swapcase', 'strip', 'lstrip', 'rstrip', 'casefold')}()",
            lambda: f"{s()}.{self.pick('strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix')}({s()})",
            lambda: f"{s()}.replace({s()}, {s()}{self.pick('', ', 1', ', 0', ', -1')})",
            lambda: f"{s()}.{self.pick('zfill', 'center', 'ljust', 'rjust')}({self.pick('3', '8', '11')})",
            lambda: f"{s()}.{self.pick('center', 'ljust', 'rjust')}(9, {self.pick(repr('*'), repr('é'), s())})",
            lambda: f"{s()}.join({self.pick('ls', 'w', self.expr('list', d))})",
            lambda: f"{s()}|{self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'reverse', 'e', 'safe', 'indent', 'indent(2, true)')}",
            lambda: f"{s()}|replace({s()}, {s()})",
            lambda: f"{s()}|trim({s()})",
            lambda: f"{self.expr('list', d)}|join({s() if self.chance(0.7) else ''})",
            lambda: f"users|join(', ', attribute='name')",
            lambda: f"{self.expr(None, d)}|tojson{self.pick('', '(indent=2)', '(true)', '(separators=(' + repr(',') + ', ' + repr(':') + '))', '(sort_keys=true)', '(indent=0)')}",
            lambda: f"{self.expr(None, d)}|{self.pick('string', 'e', 'upper')}",
            lambda: f"({self.pick(repr('%s'), repr('%r|%s'), repr('%d'), repr('%05.1f'), repr('%-6s|'), repr('%x'), repr('%+d'), repr('%%'), repr('%e'), repr('%g'))} % {self.pick(self.expr(None, d), '(' + self.expr(None, d) + ', ' + self.expr(None, d) + ')')})",
            lambda: f"{self.pick(repr('{}'), repr('{0}{1}{0}'), repr('{:>6}'), repr('{:.2f}'), repr('{a}'), repr('{!r}'), repr('{:,}'), repr('{:05d}'), repr('{:^7}|'), repr('{:x}'), repr('{0[a]}'), repr('{:+.1e}'), repr('{:%}'))}.format({self.expr(None, d)}, {self.expr(None, d)}, a={self.expr(None, d)})",
            lambda: f"'%s and %s'|format({self.expr(None, d)}, {self.expr(None, d)})",
            lambda: f"{s()}.split({s()})|join('|')",
            lambda: f"{s()}.{self.pick('partition', 'rpartition')}({s()})|string",
        )()

    def slice(self, d):
        part = lambda: self.expr("int", 0) if self.chance(0.6) else ""
        return f"{part()}:{part()}" + (f":{self.pick('1', '-1', '2', '-2', part())}" if self.chance(0.4) else "")

    def make_int(self, d):
        i = lambda: self.expr(self.pick("int", "int", "int", "float", "bool"), d)
        return self.pick(
            lambda: f"({i()} {self.pick('+', '-', '*', '//', '%')} {i()})",
            lambda: f"({i()} ** {self.pick('0', '1', '2', '3')})",
            lambda: f"-{i()}",
            lambda: f"{self.expr(self.pick('str', 'list', 'dict'), d)}|{self.pick('length', 'count')}",
            lambda: f"{self.expr(None, d)}|int{self.pick('', '(5)', '(default=9)', '(0, 16)', '(base=8)')}",
            lambda: f"{i()}|abs",
            lambda: f"{self.expr('list', d)}|sum",
            lambda: f"users|sum(attribute='age')",
            lambda: f"{self.expr('str', d)}.{self.pick('find', 'rfind', 'count', 'find', 'count', 'index')}({self.expr('str', d)}{self.pick('', ', 1', ', 2, 5', ', -3')})",
            lambda: f"{self.expr('list', d)}.{self.pick('count', 'count', 'count', 'index')}({self.expr(None, d)})",
            lambda: f"{i()}|round{self.pick('', '(1)', '(-1)')}",
        )()

    def make_float(self, d):
        n = lambda: self.expr(self.pick("int", "float"), d)
        return self.pick(
            lambda: f"({n()} {self.pick('+', '-', '*', '/', '//', '%')} {n()})",
            lambda: f"{self.expr(None, d)}|float{self.pick('', '(1.5)')}",
            lambda: f"{n()}|round({self.pick('0', '1', '2', '-1')}{self.pick('', ', ' + repr('ceil'), ', ' + repr('floor'))})",
            lambda: f"-{n()}",
        )()

    def make_bool(self, d):
        any_ = lambda: self.expr(None, d)
        return self.pick(
            lambda: f"({any_()} {self.pick('==', '!=')} {any_()})",
            lambda: f"({self.expr('int', d)} {self.pick('<', '<=', '>', '>=')} {self.expr(self.pick('int', 'float'), d)})",
            lambda: f"({self.expr('str', d)} {self.pick('<', '>=', 'in', 'not in')} {self.expr('str', d)})",
            lambda: f"({any_()} {self.pick('in', 'not in')} {self.expr(self.pick('list', 'dict'), d)})",
            lambda: f"(not {any_()})",
            lambda: f"({self.expr('int', d)} < {self.expr('int', d)} <= {self.expr('int', d)})",
            lambda: f"({any_()} is {self.pick('', 'not ')}{self.pick('defined', 'undefined', 'none', 'string', 'number', 'integer', 'float', 'boolean', 'mapping', 'sequence', 'iterable', 'callable', 'true', 'false', 'lower', 'upper')})",
            lambda: f"({self.expr('int', d)} is {self.pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)', 'eq 7', 'gt(2)', 'in [1, 7]')})",
            lambda: f"{self.expr('str', d)}.{self.pick('startswith', 'endswith')}({self.pick(self.expr('str', d), '(' + self.expr('str', d) + ', ' + self.expr('str', d) + ')')})",
            lambda: f"{self.expr('str', d)}.{self.pick('isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower', 'istitle', 'isnumeric', 'isascii', 'isidentifier')}()",
            lambda: f"('{self.pick('upper', 'nope', 'odd')}' is {self.pick('filter', 'test')})",
        )()

    def make_list(self, d):
        l = lambda: self.expr("list", d)
        return self.pick(
            lambda: f"[{', '.join(self.expr(None, d) for _ in range(self.r.randrange(4)))}]",
            lambda: f"({self.expr(None, d)}, {self.expr(None, d)})",
            lambda: f"({l()}|list + {l()}|list)",
            lambda: f"({l()}|list * {self.pick('0', '2')})",
            lambda: f"{l()}[{self.slice(d)}]",
            lambda: f"{l()}|{self.pick('map(' + repr('string') + ')|sort', 'sort', 'map(' + repr('string') + ')|sort(reverse=true, case_sensitive=true)', 'map(' + repr('tojson') + ')|unique|list', 'reverse|list', 'list', 'map(' + repr('string') + ')|list', 'map(' + repr('upper') + ')|list', 'select|list', 'reject|list', 'select(' + repr('string') + ')|list', 'reject(' + repr('none') + ')|list', 'select(' + repr('number') + ')|select(' + repr('gt') + ', 1)|list')}",
            lambda: f"{self.expr('dict', d)}|{self.pick('dictsort', 'items|list', 'list', 'dictsort(by=' + repr('value') + ')', 'dictsort(true, reverse=true)')}",
            lambda: f"{self.expr('dict', d)}.{self.pick('items', 'keys', 'values')}()|list",
            lambda: f"{self.expr('dict', d)}.{self.pick('items', 'keys', 'values')}()",
            lambda: f"{self.expr('str', d)}.{self.pick('split', 'rsplit', 'splitlines')}()",
            lambda: f"{self.expr('str', d)}.{self.pick('split', 'rsplit')}({self.expr('str', d)}{self.pick('', ', 1', ', maxsplit=2', ', 0')})",
            lambda: f"users|{self.pick('map(attribute=' + repr('name') + ')', 'map(attribute=' + repr('city') + ', default=' + repr('?') + ')', 'selectattr(' + repr('city') + ')|map(attribute=' + repr('age') + ')', 'rejectattr(' + repr('age') + ', ' + repr('==') + ', 30)|map(attribute=' + repr('name') + ')', 'selectattr(' + repr('city') + ', ' + repr('defined') + ')', 'sort(attribute=' + repr('age,name') + ')', 'map(attribute=' + repr('tags.0') + ')')}|list",
            lambda: f"range({self.pick('3', '1, 4', '5, 0, -2', self.expr('int', 0))})|list",
        )()

    def make_dict(self, d):
        return self.pick(
            lambda: "{" + ", ".join(f"{self.expr(self.pick('str', 'str', 'int', 'bool', 'any'), d)}: {self.expr(None, d)}" for _ in range(self.r.randrange(4))) + "}",
            lambda: f"dict({self.expr('dict', d)}, k={self.expr(None, d)})",
            lambda: f"dict(a={self.expr(None, d)})",
            lambda: f"dict({self.pick('[(1, 2)]', repr('a'), '[]', 'd.items()', self.expr('list', 0))})" if self.chance(0.3) else "dict(d, **ed)",
        )()

    # ---- statements

    def open(self):
        return "{%" + self.pick("", "", "", "-", "+")

    def close(self):
        return self.pick("", "", "", "-", "+") + "%}"

    def tag(self, text):
        return f"{self.open()} {text} {self.close()}"

    def text(self):
        return self.pick("", " ", "\n", "\n  ", "x", " y ", "\n\n\t", "text\n", "  \n", "{ ", "}", "%.", "# ")

    def output(self, depth=3):
        return "{{" + self.pick("", "", "-", "+") + " " + self.expr(None, depth) + " " + self.pick("", "", "-") + "}}"

    def body(self, depth):
        count = self.r.randrange(1, 4)
        before = len(self.locals)
        result = "".join(self.text() + self.statement(depth) for _ in range(count)) + self.text()
        del self.locals[before:]
        return result

    def statement(self, depth):
        if depth <= 0 or self.chance(0.35):
            return self.output()
        return getattr(self, "stmt_" + self.pick("if", "for", "for", "set", "set", "macro", "block_set", "with", "filter", "call", "misc", "namespace"))(depth - 1)

    def stmt_if(self, d):
        out = self.tag("if " + self.expr("bool", 2)) + self.body(d)
        if self.chance(0.3):
            out += self.tag("elif " + self.expr("bool", 2)) + self.body(d)
        if self.chance(0.5):
            out += self.tag("else") + self.body(d)
        return out + self.tag("endif")

    def stmt_for(self, d):
        kind = self.r.randrange(6)
        loop_bits = self.pick("{{ loop.index }}", "{{ loop.index0 }}{{ loop.first }}", "{{ loop.last }}", "{{ loop.length }}", "{{ loop.revindex }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}", "{{ loop.depth }}", "")
        jump = self.pick("", "", "", "{% if x %}{% break %}{% endif %}", "{% if not x %}{% continue %}{% endif %}", "{% if loop.index > 1 %}{% break %}{% endif %}")
        before = len(self.locals)
        if kind == 0:
            head = f"k, x in {self.expr('dict', 2)}.items()"
            self.locals += ["k", "x"]
        elif kind == 1:
            return (self.tag("for x in tree recursive") + "{{ x.v }}" + loop_bits + self.pick("({{ loop(x.kids) }})", "{% if x.kids %}[{{ loop(x.kids) }}]{% endif %}")
                    + self.pick("", self.tag("else") + "-") + self.tag("endfor"))
        else:
            head = f"x in {self.expr('list', 2)}"
            self.locals += ["x"]
        if self.chance(0.25):
            head += " if " + self.expr("bool", 1)
        out = self.tag("for " + head) + jump + loop_bits + self.body(d)
        del self.locals[before:]
        if self.chance(0.3):
            out += self.tag("else") + self.body(d)
        return out + self.tag("endfor")

    def stmt_set(self, d):
        name = self.pick("v", "u", "s", "l", "x")
        out = self.tag(f"set {name} = {self.expr(None, 3)}") if self.chance(0.85) else self.tag(f"set v, u = {self.expr('list', 2)}")
        self.locals.append(name)
        return out + (self.tag("endset") if False else "")

    def stmt_block_set(self, d):
        name = self.pick("v", "u")
        out = self.tag(f"set {name}{self.pick('', '', ' | upper', ' | trim | replace(' + repr('a') + ', ' + repr('b') + ')')}") + self.body(d) + self.tag("endset")
        self.locals.append(name)
        return out

    def stmt_namespace(self, d):
        out = self.tag(f"set ns = namespace(a={self.expr(None, 1)}, b={self.expr('list', 1)})")
        out += self.tag("for i in [1, 2]") + self.tag(f"set ns.{self.pick('a', 'c')} = {self.expr(None, 2)}") + self.tag("endfor")
        return out + "{{ ns.a }}{{ ns.c }}" + self.pick("", "{{ ns }}", "{{ ns.missing }}")

    def stmt_macro(self, d):
        name = self.pick("m", "q")
        before = len(self.locals)
        self.locals += ["p", "o"]
        out = self.tag(f"macro {name}(p, o={self.expr(None, 1)})") + self.pick("", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}") + self.body(d) + self.tag("endmacro")
        del self.locals[before:]
        call = self.pick("()", "(1)", f"({self.expr(None, 1)}, {self.expr(None, 1)})", f"(o={self.expr(None, 1)})", "(1, 2, 3)", "(1, z=5)", "(*l)", "(**d)")
        return out + "{{ " + name + call + " }}"

    def stmt_call(self, d):
        return ("{% macro c1(t='T') %}[{{ t }}{{ caller(" + self.pick("", "1", "2") + ") }}]{% endmacro %}" + self.tag(self.pick("call c1()", "call(y) c1('z')", "call(y=3) c1()"))
                + self.body(d) + self.pick("", "{{ y }}") + self.tag("endcall"))

    def stmt_with(self, d):
        before = len(self.locals)
        head = f"with v = {self.expr(None, 2)}, u = {self.expr(None, 2)}"
        self.locals += ["v", "u"]
        out = self.tag(head) + self.body(d) + self.tag("endwith")
        del self.locals[before:]
        return out

    def stmt_filter(self, d):
        return self.tag(f"filter {self.pick('upper', 'trim', 'replace(' + repr('a') + ', ' + repr('_') + ')', 'indent(2)', 'length', 'title | e')}") + self.body(d) + self.tag("endfilter")

    def stmt_misc(self, d):
        return self.pick(
            "{#" + self.pick("", "-", "+") + " comment {{ x }} " + self.pick("", "-", "+") + "#}",
            self.tag("raw") + "{{ raw }} {% if %}\n  " + self.tag("endraw"),
            self.tag("generation") + self.body(d) + self.tag("endgeneration"),
            "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b",
            self.tag("print " + self.expr(None, 2)),
            "{{ strftime_now('%Y-%m-%d %H:%M') }}",
            self.tag("block b" + str(self.r.randrange(10**9))) + self.body(d) + self.tag("endblock"),
        )

    def template(self):
        return self.body(self.pick(0, 1, 1, 2, 3))


def is_stable(template, expected):
    return not UNSTABLE.search(expected.get("text", ""))


# Documented limits that Python does not have.
KNOWN_LIMITS = re.compile(r"127 bits|complex numbers|is not supported|too large|too long")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renderer")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--write")
    options = parser.parse_args()
    print(f"seed {options.seed}")

    cases, differing, errors = [], 0, 0
    renderer = Renderer(options.renderer) if options.renderer else None
    for i in range(options.count):
        template = Generator(f"{options.seed}/{i}").template()
        expected = reference_render(template, CONTEXT)
        errors += "error" in expected
        if not is_stable(template, expected):
            continue
        if options.write:
            if "error" not in expected or i % 5 == 0:
                cases.append({"template": template, **({"text": expected["text"]} if "text" in expected else {"error": "template"})})
            continue
        actual = renderer.render(template, CONTEXT)
        if agree(expected, actual) or KNOWN_LIMITS.search(actual.get("error", "")):
            continue
        differing += 1
        if differing <= options.show:
            print(f"--- case {i}: {template!r}\n  python: {expected}\n  ours:   {actual}")
    if options.write:
        with open(options.write, "w") as file:
            json.dump({"now": NOW, "context": CONTEXT, "cases": cases}, file, ensure_ascii=True, indent=0)
        print(f"{len(cases)} cases written")
    else:
        print(f"{differing} of {options.count} differ; Python failed {errors} times")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
