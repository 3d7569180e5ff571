"""Names of the beginnings of a request's prompt, by which its turns find the replica that has computed them."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Iterator, List

TEXT_PIECE = 512  # characters of a plain prompt between two names
MOST_KEYS = 256


def prefix_keys(body: bytes) -> List[str]:
    """From the shortest to the longest beginning. The next turn of a conversation has all keys of this one but the last
    few. Empty for requests without a prompt."""
    try:
        fields = json.loads(body)
    except ValueError:
        return []
    if not isinstance(fields, dict):
        return []
    chain = hashlib.blake2b(_text([fields.get(name) for name in ("model", "tools", "system", "instructions")]), digest_size=12)
    keys = []
    for piece in _pieces(fields):
        chain.update(_text(piece))
        keys.append(chain.copy().hexdigest())
    return keys[:MOST_KEYS]


def _pieces(fields: dict) -> Iterator[Any]:
    """A system message belongs to the message behind it: many conversations share it, and would share one replica."""
    prompt = next((fields[name] for name in ("messages", "input", "prompt") if fields.get(name)), None)
    if isinstance(prompt, str):
        yield from (prompt[i : i + TEXT_PIECE] for i in range(0, len(prompt), TEXT_PIECE))
    elif isinstance(prompt, list):
        before = []
        for piece in prompt:
            before.append(piece)
            if not (isinstance(piece, dict) and piece.get("role") in ("system", "developer")):
                yield before
                before = []
        if before:
            yield before


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"
