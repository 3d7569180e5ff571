#!/usr/bin/env python3
"""Writes the conformance vectors of tests/data/templates, rendered by Python's Jinja2 as set up by transformers.

Usage: scripts/make_template_vectors.py [tests/data/templates]

families.json: our own templates in the manner of each model family (families/*.jinja), over conversations.
snippets.json: one construct each (scripts/template_snippets.py).
Random ones come from scripts/random_templates.py --write.
"""
import json
import pathlib
import sys

import template_snippets
from template_reference import NOW, SPECIAL_TOKENS, conversations, reference_render

CHOSEN = [
    "user/prompt", "system_user/plain", "two_turns/no_tools", "unicode/prompt", "parts/prompt", "image/prompt", "reasoning/thinking_on",
    "think_tags/thinking_off", "wrong_order/prompt", "developer/tools", "tool_dict/tools", "tool_text/bare_tools", "tool_parallel/tools",
    "tool_none_content/continue", "tool_thinking/documents", "tool_parts/prompt", "missing_content/tools", "no_messages/prompt",
]


def outcome(template, context):
    result = reference_render(template, context)
    return {"text": result["text"]} if "text" in result else {"error": "raised" if result["raised"] else "template"}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/templates")
    chosen = {name: {**SPECIAL_TOKENS, **conversations()[name]} for name in CHOSEN}
    cases = []
    for file in sorted((folder / "families").glob("*.jinja")):
        template = file.read_bytes().decode()
        for name, context in chosen.items():
            cases.append({"template": file.stem, "context": name, **outcome(template, context)})
    families = {"now": NOW, "contexts": chosen, "cases": cases}
    (folder / "families.json").write_text(json.dumps(families, ensure_ascii=False, indent=0) + "\n")

    context = template_snippets.CONTEXT
    snippets = {"now": NOW, "context": context,
                "cases": [{"template": t, **outcome(t, context)} for t in template_snippets.SNIPPETS]}
    (folder / "snippets.json").write_text(json.dumps(snippets, ensure_ascii=True, indent=0) + "\n")
    for name, data in (("families", families), ("snippets", snippets)):
        texts = sum("text" in case for case in data["cases"])
        print(f"{name}: {len(data['cases'])} cases, {texts} texts")


if __name__ == "__main__":
    main()
