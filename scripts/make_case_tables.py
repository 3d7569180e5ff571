#!/usr/bin/env python3
"""Writes src/text/jinja/value/case_tables.h: cases in which Python's str differs from utf8proc's one-to-one properties.

Usage: scripts/make_case_tables.py > src/text/jinja/value/case_tables.h
"""
import unicodedata


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def ranges(predicate):
    result = []
    for c in code_points():
        if unicodedata.category(chr(c)) == "Cn" or not predicate(chr(c)):
            continue
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def print_ranges(name, comment, rows):
    print(f"// {comment}\ninline constexpr CodePointRange {name}[] = {{")
    for i in range(0, len(rows), 6):
        print("    " + " ".join(f"{{0x{a:x}, 0x{b:x}}}," for a, b in rows[i : i + 6]))
    print("};\n")


def print_expansions(name, comment, method):
    rows = [(c, method(chr(c))) for c in code_points() if len(method(chr(c))) > 1]
    print(f"// {comment}\ninline constexpr CaseExpansion {name}[] = {{")
    for i in range(0, len(rows), 3):
        cells = []
        for c, text in rows[i : i + 3]:
            cells.append("{0x%x, {%s}}," % (c, ", ".join(f"0x{ord(t):x}" for t in text)))
        print("    " + " ".join(cells))
    print("};\n")


def category(c):
    return unicodedata.category(c)


print("""// Case mappings and categories of Python that the one-to-one tables of utf8proc lack.
// Made by scripts/make_case_tables.py; do not edit.
#pragma once

namespace millrace::jinja {

struct CodePointRange {
  char32_t first, last;
};

struct CaseExpansion {
  char32_t from;
  char32_t to[3];  // ends at the first zero
};
""")
print("// clang-format off")
print_expansions("kUpperExpansions", "str.upper of one character that gives several.", str.upper)
print_expansions("kTitleExpansions", "str.title of one character that gives several.", str.title)
print_ranges("kOtherLower", "str.islower beyond category Ll.", ranges(lambda c: c.islower() and category(c) != "Ll"))
print_ranges("kOtherUpper", "str.isupper beyond category Lu.", ranges(lambda c: c.isupper() and category(c) != "Lu"))
print_ranges("kOtherDigit", "str.isdigit beyond category Nd.", ranges(lambda c: c.isdigit() and category(c) != "Nd"))
print_ranges("kOtherNumeric", "str.isnumeric beyond the categories N*.",
             ranges(lambda c: c.isnumeric() and category(c)[0] != "N"))
print("// clang-format on")
print("\n}  // namespace millrace::jinja")
