"""Random answers within the masks of schemas, validated independently by the jsonschema package."""

import json
import os
import random
import re
import subprocess

import jsonschema
import pytest
import regex as patient

from conftest import BUILD

TOOL = BUILD / "tests" / "grammar" / "grammar_tool"

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
    {"type": "integer", "minimum": 0, "multipleOf": 5}, {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 12}, {"type": "number", "minimum": -3, "multipleOf": 7},
    {"type": "string", "enum": ["a", "éé", "abc", "abcdef"], "minLength": 2, "maxLength": 4}, {"enum": [1, 5, "x", [1, 2], {"a": 1}], "minimum": 3, "maxItems": 1, "minProperties": 1},
    {"type": "integer", "exclusiveMinimum": -1000, "exclusiveMaximum": -998}, {"type": "number", "minimum": 0.001, "maximum": 0.002}, {}, True,
    {"type": "string", "pattern": "^[A-Z]{2}-\\d{4}(-[a-f0-9]+)?$", "maxLength": 12}, {"type": "string", "pattern": "[0-9]{3}", "minLength": 5, "maxLength": 9},
    {"type": "string", "pattern": "^(foo|bar(?:baz)?)+$", "minLength": 7}, {"type": "string", "pattern": "^a*b?(cd)*$|^x+y+$", "minLength": 3, "maxLength": 5},
    {"type": "string", "format": "email", "maxLength": 16}, {"type": "string", "format": "uri", "minLength": 14, "maxLength": 30},
    {"type": "string", "format": "hostname", "maxLength": 12}, {"type": "string", "format": "relative-json-pointer"}, {"type": "string", "format": "color", "maxLength": 3},
    {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}, {"type": "integer", "minimum": 3, "maximum": 9223372036854775807},
    {"type": "integer", "format": "uint8"}, {"type": "integer", "format": "uint64"},
    {"$defs": {"c": {"enum": ["r", "g", "b", 4]}}, "type": "array", "items": {"$ref": "#/$defs/c"}, "uniqueItems": True, "minItems": 2},
    {"type": "array", "items": {"anyOf": [{"enum": [1, 2, 3]}, {"const": "x"}, {"enum": [3, 4]}]}, "uniqueItems": True, "maxItems": 3},
    # negations and conditions
    {"type": "string", "not": {"enum": ["none", "no", ""]}}, {"not": {"type": ["null", "object"]}}, {"type": "string", "not": {"maxLength": 2}}, {"enum": ["a", "b", 3], "not": {"const": "b"}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "not": {"required": ["a", "b"]}}, {"type": ["boolean", "null"], "not": {"const": True}},
    {"type": "object", "properties": {"country": {"enum": ["US", "CA"]}, "zip": {"type": "string"}}, "required": ["country", "zip"], "if": {"properties": {"country": {"const": "US"}}},
     "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}}, "else": {"properties": {"zip": {"pattern": "^[A-Z][0-9]"}}}},
    {"type": "object", "properties": {"kind": {"enum": ["a", "b", "c"]}, "x": {"type": "integer"}, "y": {"type": "null"}}, "required": ["kind"],
     "allOf": [{"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}}, {"if": {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}, "then": {"required": ["y"]}}]},
    {"type": "object", "properties": {"card": {"type": "null"}, "address": {"type": "boolean"}, "zip": {"type": "integer"}}, "dependentRequired": {"card": ["address"], "address": ["zip"]}},
    {"type": "object", "properties": {"card": {"type": "null"}}, "dependentSchemas": {"card": {"properties": {"address": {"type": "integer"}}, "required": ["address"]}}},
    {"type": "object", "properties": {"email": {"type": "null"}, "phone": {"type": "null"}, "name": {"type": "null"}}, "oneOf": [{"required": ["email"]}, {"required": ["phone"]}]},
    {"type": "integer", "oneOf": [{"maximum": 5}, {"minimum": 3}]}, {"type": "string", "oneOf": [{"maxLength": 3}, {"minLength": 2, "maxLength": 6}]},
    {"oneOf": [{"type": "number"}, {"minLength": 3}]}, {"oneOf": [{"type": "string"}, {"type": "string", "enum": ["auto", "none"]}, {"type": "null"}]},
    # options that are distinguished by the written values, next to keywords that could change that
    {"oneOf": [{"minLength": 3}, {"type": "string"}, {"type": "number"}]}, {"oneOf": [{"maximum": 5}, {"type": ["string", "number"]}, {"type": "null"}]},
    {"type": ["number", "string"], "allOf": [{"oneOf": [{"minLength": 3}, {"type": "number"}]}]},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
     "allOf": [{"oneOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}]},
    {"$ref": "#/$defs/c", "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
     "$defs": {"c": {"oneOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "if": {"properties": {"a": {"type": "integer"}}},
     "then": {"oneOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}, "else": False},
    {"type": "object", "properties": {"k": {"type": ["string", "number"]}}, "required": ["k"],
     "allOf": [{"oneOf": [{"properties": {"k": {"minLength": 3}}, "required": ["k"]}, {"properties": {"k": {"type": "number"}}, "required": ["k"]}]}]},
    {"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}, {"const": 3}]},
    {"allOf": [{"enum": [{"a": 1, "b": 2}, 4]}, {"enum": [5, {"b": 2, "a": 1}]}]},
    {"$defs": {"node": {"oneOf": [{"type": "object", "properties": {"op": {"const": "not"}, "left": {"$ref": "#/$defs/node"}}, "required": ["op", "left"]}, {"type": "integer"}]}}, "$ref": "#/$defs/node"},
    # unevaluated members and items, next to keywords that evaluate them elsewhere
    {"allOf": [{"unevaluatedItems": False}], "type": "array", "items": {"type": "null"}}, {"type": "object", "properties": {"a": {"type": "null"}}, "unevaluatedProperties": False},
    {"$ref": "#/$defs/c", "properties": {"b": {"type": "null"}}, "$defs": {"c": {"type": "object", "properties": {"a": {"type": "null"}}, "unevaluatedProperties": False}}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "null"}}}], "properties": {"b": {"type": "null"}}, "required": ["a", "b"], "unevaluatedProperties": False},
    {"type": "object", "properties": {"a": {"type": "null"}}, "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False},
    {"type": "object", "oneOf": [{"properties": {"k": {"const": 1}, "a": {"type": "null"}}, "required": ["k"]}, {"properties": {"k": {"const": 2}, "b": {"type": "null"}}, "required": ["k", "b"]}],
     "unevaluatedProperties": False},
    # members by pattern next to listed ones, names
    {"type": "object", "properties": {"name": {"type": "null"}}, "patternProperties": {"^x-[a-z]{1,3}$": {"type": "boolean"}}, "required": ["name"], "additionalProperties": False},
    {"type": "object", "properties": {"x-id": {"minimum": 3}}, "required": ["x-id"], "patternProperties": {"^x-": {"type": ["string", "integer"]}}},
    {"type": "object", "required": ["x1"], "patternProperties": {"^x[0-9]$": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "required": ["x1"], "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"id": {"type": "null"}, "Id": {"type": "null"}}, "propertyNames": {"pattern": "^[a-z]+$"}},
    # numbers, lists, strings
    {"type": "integer", "minimum": 0, "if": {"minimum": 0}, "then": {"multipleOf": 5}}, {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 2}, {"type": "null"}]},
    {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 5}, {"type": "null"}]},
    {"type": "integer", "minimum": 0, "maximum": 1e15, "multipleOf": 100}, {"type": "integer", "minimum": -100000, "maximum": 99999, "multipleOf": 7},
    {"type": "integer", "minimum": 5, "maximum": 86400, "multipleOf": 5}, {"type": "integer", "minimum": -123456, "exclusiveMaximum": -350, "multipleOf": 30},
    {"type": "array", "items": {"type": "string"}, "contains": {"const": "admin"}, "maxItems": 3}, {"type": "array", "prefixItems": [{"type": "null"}], "unevaluatedItems": False},
    {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 1}, {"type": "string", "enum": ["abc", "xab", "ab"], "pattern": "^ab"},
    {"type": "string", "format": "date", "enum": ["2024-01-31", "2024-01-32"]}, {"type": "string", "format": "email", "minLength": 40}, {"type": "string", "format": "email", "minLength": 6, "maxLength": 254},
    # merged schemas whose keywords refer to other places than their own: counts, leading items, names
    {"allOf": [{"contains": {"const": 1}, "minContains": 0}, {"contains": {"const": 1}}], "type": "array", "items": {"enum": [1, 2]}},
    {"type": "array", "minContains": 0, "not": {"items": {"type": "integer"}}, "items": {"enum": [1, "a"]}},
    {"allOf": [{"prefixItems": [{"type": ["integer", "string"]}]}, {"items": {"type": "integer"}}], "type": "array"},
    {"allOf": [{"prefixItems": [{"type": ["integer", "string"]}, {"type": "null"}]}, {"prefixItems": [{"type": ["integer", "boolean"]}], "items": {"type": ["null", "string"]}}], "type": "array", "minItems": 2},
    {"properties": {"é": True}, "patternProperties": {"^\\w$": {"type": "integer"}}, "required": ["é"], "type": "object", "additionalProperties": False},
    {"patternProperties": {"^\\w$": {"type": "integer"}}, "required": ["é"], "type": "object", "additionalProperties": {"type": ["integer", "string"]}},
    {"type": "string", "pattern": "^(?=.*\\d)[a-z0-9]{40,}$", "maxLength": 100},
    {"type": "string", "$except": 5, "$avoid": ["("], "$fraction": "x"},
    {"$defs": {"p": {"$anchor": "positive", "type": "integer", "minimum": 1}}, "$ref": "#positive"},
    # several constraints on one string
    {"allOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"pattern": "x"}]}, {"type": "string", "format": "uri", "pattern": "^https://"}, {"type": "string", "format": "date-time", "pattern": "Z$"},
    {"type": "string", "pattern": "^(?!\\s*$).+"}, {"type": "string", "pattern": "^(?=.*[A-Z])(?=.*[0-9])(?=.*[a-z]).{8,20}$"}, {"type": "string", "pattern": "^((?!null).)*$"},
    {"type": "string", "not": {"pattern": "^x-"}}, {"type": "string", "pattern": "^(foo$|bar[0-9]+$)"}, {"type": "string", "pattern": "^\\S.*\\S$", "minLength": 2, "maxLength": 500},
    {"type": "string", "pattern": "\\S", "maxLength": 4096}, {"type": "string", "pattern": "(?i)^abc[^k]$"}, {"type": "string", "pattern": "^[^\\W\\d]{1,3}\\D\\S$"},
    {"oneOf": [{"type": "string", "pattern": "^#[0-9a-f]{6}$"}, {"type": "string", "enum": ["red", "green"]}]}, {"oneOf": [{"type": "string", "pattern": "^\\d+$"}, {"type": "string", "maxLength": 3}]},
    {"type": "object", "properties": {"v": {"type": "string"}, "w": {"type": "integer"}}, "required": ["v"], "if": {"properties": {"v": {"pattern": "^a"}}}, "then": {"required": ["w"]}},
    # members by several patterns, names, counts
    {"type": "object", "patternProperties": {"^[a-z]+$": {"type": "integer"}, "^[A-Z]+$": {"type": "string"}}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "z$": {"minimum": 5}}, "additionalProperties": {"type": "boolean"}, "minProperties": 1},
    {"type": "object", "properties": {"name": {"type": "string"}, "x-foo": {"type": "string", "maxLength": 4}}, "required": ["name"], "patternProperties": {"^x-": {}}, "additionalProperties": False},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}, {"patternProperties": {".*": {"minimum": 3}}}]},
    {"type": "object", "propertyNames": {"minLength": 1, "maxLength": 10, "not": {"pattern": "^_"}}, "properties": {"abc": {"type": "null"}}, "additionalProperties": {"type": "number"}},
    {"type": "object", "required": ["a"], "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
    {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 3}, {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}, "minContains": 2, "maxContains": 3},
    # without duplicates
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 3}, {"type": "array", "items": {"type": "integer", "minimum": 1}, "uniqueItems": True, "minItems": 2, "maxItems": 5},
    {"type": "array", "uniqueItems": True}, {"type": "array", "items": {"type": "string", "format": "uri"}, "uniqueItems": True, "minItems": 2}, {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "uniqueItems": True},
    {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "number"}}, "required": ["name"]}, "uniqueItems": True, "minItems": 2},
    {"allOf": [{"type": "array", "prefixItems": [{"type": ["string", "integer"]}, {"type": "integer"}]}, {"items": {"minimum": 3, "type": "integer"}, "minItems": 3}]},
    # numbers
    {"type": "number", "multipleOf": 0.01}, {"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 1}, {"type": "number", "multipleOf": 0.25, "minimum": -90, "maximum": 90.25},
    {"type": "integer", "multipleOf": 1024}, {"allOf": [{"type": "number", "multipleOf": 0.5}, {"multipleOf": 3}]}, {"type": ["integer", "string"], "minimum": -3, "maximum": 9, "not": {"enum": [0, 5, "x"]}},
    {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, {"type": "integer", "minimum": 9007199254740993}, {"enum": [9007199254740993, 9007199254740992], "maximum": 9007199254740992},
    # schemas as found in practice
    {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"], "ui:widget": "radio", "errorMessage": "no"}, {"allOf": [{"type": "string", "errorMessage": "a"}, {"minLength": 2, "errorMessage": "b"}]},
    {"type": "object", "properties": {"port": {"oneOf": [{"type": ["string", "null"]}, {"type": ["integer", "null"]}]}}, "required": ["port"]},
    {"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "object", "properties": {"t": {"enum": list("abcdefghijkl")}}, "required": ["t"], "allOf": [{"if": {"properties": {"t": {"const": k}}}, "then": {"required": ["p" + k]}} for k in "abcdefghijkl"]},
    {"type": "object", "properties": {c: {"type": "null"} for c in "abcdefghij"}, "dependentRequired": {a: [b] for a, b in zip("abcdefghij", "bcdefghija")}},
    {"$id": "https://ex.com/root", "type": "object", "properties": {"a": {"$ref": "item"}}, "$defs": {"I": {"$id": "item", "type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"], "$defs": {"N": {"type": "integer"}}}}, "required": ["a"]},
    {"$dynamicAnchor": "node", "type": "object", "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}, "maxItems": 2}}},
    {"type": "object", "properties": {f"prop{i}": {"type": ["string", "null"], "maxLength": 10000} for i in range(300)}, "additionalProperties": False},
    # negations of formats, divisors, items
    {"type": "string", "not": {"format": "date"}}, {"if": {"format": "date"}, "then": {"maxLength": 3}}, {"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "maxLength": 12}]},
    {"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}, {"type": "string", "format": "time"}]}, {"type": "string", "not": {"format": "uuid"}, "minLength": 30},
    {"oneOf": [{"type": "string", "format": "email"}, {"type": "string", "pattern": "^\\+\\d+$"}]}, {"type": "string", "not": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}},
    {"type": "integer", "not": {"multipleOf": 3}}, {"type": "integer", "minimum": -20, "maximum": 120, "multipleOf": 2, "not": {"multipleOf": 5}}, {"not": {"multipleOf": 7}},
    {"type": "integer", "oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]}, {"type": "integer", "if": {"multipleOf": 2}, "then": {"minimum": 10}, "else": {"maximum": 5}},
    {"enum": [1, 2, 3, 4.5, 6, 9], "multipleOf": 3, "not": {"multipleOf": 2}}, {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "not": {"contains": {"const": 0}}},
    # contained items next to others, each once
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "contains": {"const": 7}}, {"type": "array", "prefixItems": [{"enum": ["x", 7]}, {"type": "integer"}], "items": False, "contains": {"const": 7}},
    {"type": "array", "prefixItems": [{"const": "x"}], "items": {"type": "integer"}, "contains": {"type": "integer", "minimum": 5}, "minContains": 2, "maxContains": 3, "maxItems": 6},
    {"type": "array", "items": {"type": "string"}, "allOf": [{"contains": {"const": "a"}}, {"contains": {"const": "b"}, "minContains": 2}]},
    {"type": "array", "items": {"enum": ["a", "b", "c", "d"]}, "contains": {"const": "c"}, "uniqueItems": True}, {"type": "array", "items": {"type": "string"}, "contains": {"const": "admin"}, "uniqueItems": True, "minItems": 2},
    {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}, "minContains": 2, "maxContains": 2, "uniqueItems": True, "minItems": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False, "minItems": 2, "uniqueItems": True}, {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}, "uniqueItems": True, "minItems": 3},
    {"type": "array", "prefixItems": [{"enum": [1, 2, "a"]}, {"enum": [2, 1]}, {"type": ["integer", "string"]}], "uniqueItems": True, "minItems": 3},
    {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
    # numbers of members with similar names
    {"type": "object", "propertyNames": {"pattern": "^x_"}, "minProperties": 3, "additionalProperties": {"type": "string"}}, {"type": "object", "patternProperties": {"^[0-9]+$": {"type": "null"}}, "additionalProperties": False, "minProperties": 2},
    {"type": "object", "patternProperties": {"^S_": {"type": "string"}, "^I_": {"type": "integer"}}, "additionalProperties": False, "minProperties": 4}, {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 20},
    {"type": "object", "propertyNames": {"enum": ["en", "de", "fr", "es"]}, "additionalProperties": {"type": "string"}, "minProperties": 2, "maxProperties": 3},
    {"type": "object", "propertyNames": {"enum": ["en", "de"]}, "patternProperties": {"^d": {"type": "null"}}, "properties": {"en": {"type": "integer"}, "fr": True}, "minProperties": 2},
    # anchors and lookbehind as in Python
    {"type": "string", "pattern": "\\A[a-z]+\\Z"}, {"type": "string", "pattern": "^(?!-)[a-z0-9-]{1,63}(?<!-)$"}, {"type": "string", "pattern": "^[a-z.]{3,}(?<!\\.\\.)@[a-z]+(?<=[xyz])$"},
    {"type": "string", "pattern": "^(?i:yes|no)[a-z]$"}, {"type": "string", "pattern": "\\bfoo\\b", "maxLength": 30},
    {"$id": "https://example.com/root.json", "$defs": {"p": {"type": "null"}}, "type": "array", "items": {"$ref": "https://example.com/root.json#/$defs/p"}},
]

REFUSED = [
    {"const": 100000000000000000001}, {"$ref": "http://json-schema.org/draft-07/schema#"}, {"type": "string", "pattern": "a{,3}"}, {"type": "string", "not": {"format": "regex"}}, {"type": "string", "not": {"format": "unheard-of"}},
    {"type": "string", "pattern": "^(a)\\1$"}, {"type": "string", "pattern": "^a?(?<!b)c$"}, {"type": "string", "pattern": "\\p{Unheard}"}, {"type": "array", "items": {"type": "integer"}, "not": {"uniqueItems": True}},
    {"type": "array", "items": {"type": "integer"}, "allOf": [{"contains": {"const": 1}, "maxContains": 1}, {"contains": {"minimum": 0}}]}, {"allOf": [{"multipleOf": 0.1}, {"multipleOf": 3}], "type": "number"},
    {"type": "object", "properties": {"a": True}, "not": {"required": ["a"]}, "unevaluatedProperties": False},
    {"type": "string", "format": "email", "minLength": 100}, {"type": "array", "items": {"type": "array"}, "uniqueItems": True, "minItems": 2},
    {"type": "object", "patternProperties": {"^x1$": {"type": "integer"}}, "required": ["x1"], "not": {"maxProperties": 1}, "additionalProperties": False},
    {"allOf": [{"unevaluatedItems": False}], "type": "array", "items": {"type": "null"}, "minItems": 1}, {"type": "object", "required": ["x"], "unevaluatedProperties": False},
    {"$ref": "#/$defs/c", "properties": {"b": {"type": "null"}}, "required": ["b"], "$defs": {"c": {"type": "object", "properties": {"a": {"type": "null"}}, "unevaluatedProperties": False}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}}, {"not": {"oneOf": [{"$ref": "#"}]}},
    {"oneOf": [{"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["left", "right"]},
               {"type": "object", "properties": {"left": {"$ref": "#"}}, "required": ["left"]}, {"type": "integer"}]},
]


class Walker:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, kind, text, seed, count):
        return self.question({"kind": kind, "text": text, "seed": seed, "count": count})

    def accepts(self, kind, text, texts):
        return self.question({"kind": kind, "text": text, "texts": texts})["accepted"]

    def question(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the walk ended with {self.process.wait()} on {question}"
        return json.loads(line)


@pytest.fixture(scope="module")
def walker():
    walker = Walker()
    yield walker
    walker.process.stdin.close()
    walker.process.wait()


def judge(walker, schema, seed, count):
    """None: refused. Otherwise the number of valid answers, which is all of them."""
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


@pytest.mark.parametrize("schema", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_said_is_refused(walker, schema):
    assert judge(walker, schema, 1, 1) is None


@pytest.mark.parametrize("pattern", ["^[\\p{L}\\p{M}' \\-]{1,60}$", "^\\p{Lu}\\p{Ll}+$", "^\\P{N}{2,9}$", "^\\p{Script=Greek}{2,5}$", "[\\p{Han}\\p{Hiragana}]", "^[^\\p{P}\\p{Z}]+$", "^\\pL\\p{Nd}$"])
def test_unicode_properties(walker, pattern):
    """Unicode properties, which jsonschema's own regex engine does not know."""
    schema = {"type": "string", "pattern": pattern, "maxLength": 70}
    answers = walker.ask("schema", json.dumps(schema), random.SystemRandom().randrange(1 << 32), 30)["answers"]
    moved = "\u0295"  # its category changed in Unicode 17
    assert answers and all(patient.search(pattern, json.loads(text)) or moved in text for text in answers), answers


# Texts as a model would write them: in the order of the properties.
COVERED = [
    ({"type": "string", "pattern": "^[\\p{L} '-]+$"}, ["Zoë Müller", "O'Neil", "李小龍"], ["R2D2", "a.b"]),
    ({"type": "string", "pattern": "^(?!-)[a-z0-9-]{1,63}(?<!-)$"}, ["a", "my-host", "x1"], ["-a", "a-", ""]),
    ({"type": "integer", "not": {"multipleOf": 3}}, [1, -2, 100, 9998, 7], [0, 3, -9, 300, 1.5]),
    ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "contains": {"const": 7}}, [["a", 7], ["", 7, 1, 2]], [["a"], [7], []]),
    ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "contains": {"const": "b"}, "uniqueItems": True}, [["b"], ["b", "a"], ["b", "a", "c"]], [["a"], ["b", "b"], []]),
    ({"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}, ["2024-02-28", "2024-02-28T10:00:00Z"], ["x", "2024-02-30"]),
    ({"type": "object", "propertyNames": {"enum": ["en", "de", "fr"]}, "additionalProperties": {"type": "string"}, "minProperties": 1}, [{"en": "x"}, {"en": "a", "de": "b", "fr": "c"}], [{}, {"es": "x"}, {"en": 1}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}}, "required": ["a"]}, [{"a": 1}, {"a": -5, "b": None}, {"a": 0, "b": "é\n"}], [{"b": "x"}, {"a": 1.5}, {"a": "1"}]),
    ({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3}, [["a"], ["", "b", "c"]], [[], [1], ["a"] * 4]),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, [0, 0.5, 0.999999], [1, -0.1, 2]),
    ({"type": "string", "pattern": "^[^\\s]+(\\s+[^\\s]+)*$", "maxLength": 100}, ["a", "a b", "x" * 90], ["", " a", "a ", "x" * 101]),
]


@pytest.mark.parametrize("schema,valid,invalid", COVERED, ids=range(len(COVERED)))
def test_valid_texts_are_let_through(walker, schema, valid, invalid):
    texts = [json.dumps(value, ensure_ascii=False) for value in valid + invalid]
    assert walker.accepts("schema", json.dumps(schema), texts) == [True] * len(valid) + [False] * len(invalid), schema


def test_names_of_keywords_may_be_escaped(walker):
    text = r'{"type": "object", "properties": {"a": true}, "not": {"required": ["a"]}, "\u0075nevaluatedProperties": false}'
    assert "unevaluatedProperties" in walker.ask("schema", text, 1, 1)["error"]


def test_older_drafts_pass_over_what_is_beside_a_reference(walker):
    """The rest of the string is shorter than 2, not merely shorter than 5."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "not": {"$ref": "#/definitions/long", "minLength": 5}, "definitions": {"long": {"minLength": 2}}}
    answers = walker.ask("schema", json.dumps(schema), 1, 40)["answers"]
    assert answers and all(not list(jsonschema.Draft7Validator(schema).iter_errors(json.loads(a))) for a in answers), answers


class RandomSchema:
    # Formats that jsonschema checks as exactly as we do; oneOf and not depend on it. It accepts any text as a duration,
    # host or URI, and any text with an @ as an address.
    FORMATS = ["date", "time", "ipv4", "ipv6"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def any(self, depth):
        r = self.random
        kinds = [self.string, self.number, self.const, self.simple]
        if depth > 0:
            kinds += [self.object] * 3 + [self.array, self.any_of, self.all_of, self.one_of, self.reference, self.by_pattern]
        schema = r.choice(kinds)(depth)
        if r.random() < 0.05:
            schema.update(self.rare(depth))
        return schema

    def rare(self, depth):
        """Less common keywords: enforced or refused, never ignored."""
        inner = self.any(0)
        return self.random.choice([
            {"not": inner}, {"if": inner, "then": {"minLength": 9}}, {"if": {"type": "object"}, "then": {"required": ["zz"]}, "else": {"const": 5}},
            {"dependentRequired": {"a": ["b"]}}, {"dependentSchemas": {"a": {"required": ["zz"]}}}, {"contains": inner}, {"contains": inner, "minContains": 2},
            {"uniqueItems": True}, {"unevaluatedProperties": False}, {"unevaluatedItems": False}, {"propertyNames": {"maxLength": 2}},
            {"minProperties": 2}, {"maxProperties": 1}, {"multipleOf": 0.5}, {"multipleOf": 7}, {"enum": [1, "a", {"a": 1}, None, 2.5, 14, "abcdefghij"]},
            {"const": "abc"}, {"pattern": "^a"}, {"format": "date"}, {"minLength": 2}, {"maximum": 3}, {"minItems": 1}, {"type": ["object", "string", "null", "integer"]},
            {"required": ["new"]}, {"additionalProperties": False}, {"items": {"type": "integer"}}, {"prefixItems": [{"const": 1}, {"const": 2}], "minItems": 2},
            {"default": 4, "title": "t", "description": "d", "examples": [1], "deprecated": True, "readOnly": True, "$comment": "c", "x-more": 1},
            {"patternProperties": {"^b": {"type": "null"}}}, {"allOf": [{"minLength": 3}, {"maxLength": 5}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ])

    def reference(self, depth):
        """A recursive schema: a list of lists, or a chain of members."""
        inner = self.any(depth - 1)
        return self.random.choice([{"anyOf": [inner, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]},
                                   {"type": "object", "properties": {"v": inner, "next": {"$ref": "#"}}, "required": ["v"]}, {"$ref": "#/$defs/one"}])

    def by_pattern(self, depth):
        pattern = self.random.choice(["^[a-f]{1,3}$", "x", "^\\d+$", "^(a|bc)_"])
        return {"type": "object", "patternProperties": {pattern: self.any(depth - 1)}, **self.some(additionalProperties=False, minProperties=1, maxProperties=2)}

    def document(self):
        schema = self.any(3)
        if "#/$defs/one" in json.dumps(schema):
            schema["$defs"] = {"one": self.any(1)}
            if "#/$defs/one" in json.dumps(schema["$defs"]) or '"#"' in json.dumps(schema["$defs"]):
                schema["$defs"] = {"one": {"type": "integer"}}
        return schema

    def some(self, **keywords):
        return {k: v for k, v in keywords.items() if self.random.random() < 0.5}

    def string(self, depth):
        r = self.random
        lengths = sorted(r.randrange(8) for _ in range(2))
        extra = r.choice([self.some(minLength=lengths[0], maxLength=lengths[1]), {"pattern": r.choice(["^[a-c]{1,3}$", "x", "^a|b$", "[^\"]\\\\", "^(ab|cd)*$", "é+$"])},
                          {"format": r.choice(self.FORMATS)}, {}])
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
    """Most schemas are accepted, and every answer for those validates."""
    first = random.SystemRandom().randrange(1 << 32)
    accepted = sum(judge(walker, RandomSchema(first + i).document(), first + i, 6) is not None for i in range(int(os.environ.get("SCHEMAS", "150"))))
    assert accepted > 50, (first, accepted)


@pytest.mark.parametrize("regex", ["(a|bc)*d", "[A-Z][a-z]{1,5}( [a-z]+)?", "\\d{1,3}(\\.\\d{1,3}){3}", "[^a-z\\s]{2}", "é+|ü"])
def test_regex_answers_match(walker, regex):
    for text in walker.ask("regex", regex, random.SystemRandom().randrange(1 << 32), 40)["answers"]:
        assert re.fullmatch(regex, text, re.ASCII), (regex, text)


class RandomForm:
    """The same language as a regular expression and as a grammar."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def choice(self, depth):
        parts = [self.sequence(depth) for _ in range(self.random.choice([1, 1, 2, 3]))]
        return "|".join(p[0] for p in parts), " | ".join(p[1] for p in parts)

    def sequence(self, depth):
        parts = [self.repeated(depth) for _ in range(self.random.randrange(1, 4))]
        return "".join(p[0] for p in parts), " ".join(p[1] for p in parts)

    def repeated(self, depth):
        regex, ebnf = self.atom(depth)
        low = self.random.randrange(3)
        times = self.random.choice(["", "", "", "?", "*", "+", "{%d}" % low, "{%d,%d}" % (low, low + 2), "{%d,}" % low])
        return regex + times, ebnf + times

    def atom(self, depth):
        if depth > 0 and self.random.random() < 0.4:
            regex, ebnf = self.choice(depth - 1)
            return self.random.choice(["(%s)", "(?:%s)"]) % regex, f"({ebnf})"
        return self.random.choice([("a", '"a"'), ("(?:bc)", '"bc"'), ("é", '"é"'), ("\\.", '"."'), ("\\\\", '"\\\\"'), ('"', '"\\""'), ("\\d", "[0-9]"), ("\\w", "[0-9A-Za-z_]"),
                                   ("[a-f]", "[a-f]"), ("[^a-z]", "[^a-z]"), ("[-x]", "[-x]"), ("\\n", '"\\n"'), (" ", '" "')])


def fits(regex, text):
    """Backtracking engines may take years for a random expression: those are skipped."""
    try:
        return patient.fullmatch(regex, text, patient.ASCII, timeout=2) is not None
    except TimeoutError:
        return True


def test_random_regexes_and_grammars(walker):
    first = random.SystemRandom().randrange(1 << 32)
    for i in range(int(os.environ.get("FORMS", "60"))):
        regex, ebnf = RandomForm(first + i).choice(2)
        for kind, text in (("regex", regex), ("ebnf", f"root ::= {ebnf}")):
            outcome = walker.ask(kind, text, first + i, 8)
            assert "error" not in outcome, (first + i, text, outcome)
            for answer in outcome["answers"]:
                assert fits(regex, answer), (first + i, kind, text, answer)
