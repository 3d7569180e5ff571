"""The model's tokenizer and chat template."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional, Sequence

Message = Mapping[str, Any]


class Tokenizer:
    def __init__(self, native: Any):
        self._native = native
        info = native.info()
        self.vocab_size: int = info["vocabulary"]
        self.bos_token_id: Optional[int] = info["bos"] if info["bos"] >= 0 else None
        self.eos_token_id: Optional[int] = info["eos"] if info["eos"] >= 0 else None
        self.has_chat_template: bool = info["has_chat_template"]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._native.tokenize(text, add_special_tokens)

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self._native.detokenize([int(token) for token in tokens], skip_special_tokens)

    def apply_chat_template(self, messages: Sequence[Message], tools: Optional[Sequence[Any]] = None, **variables: Any) -> str:
        """The prompt of a conversation, which ends where the answer begins."""
        fields: dict[str, Any] = {"chat_template_kwargs": variables} if variables else {}
        if tools:
            fields["tools"] = list(tools)
        return self._native.render_chat(json.dumps(list(messages)), json.dumps(fields))
