#!/usr/bin/env python3
"""Renders chat templates with millrace and with Python's Jinja2 over many conversations, and reports every difference.

Usage: scripts/compare_templates.py --renderer build/release/tests/text/jinja/render_template FILE_OR_FOLDER...

Folders are searched for *.jinja; a tokenizer_config.json gives its chat_template. Exits 1 when anything differs.
"""
import argparse
import collections
import json
import pathlib
import sys

from template_reference import Renderer, SPECIAL_TOKENS, agree, conversations, reference_render


def templates_in(path):
    files = sorted(path.rglob("*.jinja")) + sorted(path.rglob("tokenizer_config.json")) if path.is_dir() else [path]
    for file in files:
        text = file.read_bytes().decode("utf-8")
        if file.suffix != ".json":
            yield file.name, text
            continue
        found = json.loads(text).get("chat_template") or []
        for entry in [{"name": "default", "template": found}] if isinstance(found, str) else found:
            yield f"{file.parent.name}:{entry['name']}", entry["template"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renderer", required=True)
    parser.add_argument("--show", type=int, default=3, help="differences to print per template")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    options = parser.parse_args()

    renderer = Renderer(options.renderer)
    counts = collections.Counter()
    for path in options.paths:
        for name, template in templates_in(path):
            equal = failed = texts = 0
            for case, context in conversations().items():
                variables = {**SPECIAL_TOKENS, **context}
                expected, actual = reference_render(template, variables), renderer.render(template, variables)
                texts += "text" in expected
                if agree(expected, actual):
                    equal += 1
                    continue
                failed += 1
                if failed <= options.show:
                    print(f"--- {name} {case}\n  python: {expected}\n  ours:   {actual}")
            counts.update(templates=1, differing=failed > 0, cases=equal + failed, failed=failed, texts=texts)
            print(f"{'ok  ' if failed == 0 else 'FAIL'} {name}: {equal} of {equal + failed} equal, {texts} of them texts")
    print(dict(counts))
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
