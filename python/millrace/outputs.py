"""What a request gives back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Optional

FINISH_REASONS = {0: None, 1: "stop", 2: "length", 3: "tool_calls", 4: "cancelled"}


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    token: int
    logprob: float
    top: list[tuple[int, float]]  #: the likeliest tokens and their log-probabilities, best first


@dataclasses.dataclass
class Delta:
    """The next part of one choice."""

    text: str
    reasoning: str
    tokens: list[int]
    tool_calls: list[dict[str, Any]]  #: as OpenAI streams them: index, id, function name, parts of the arguments
    logprobs: Optional[list[TokenLogprob]]
    choice: int
    finish_reason: Optional[str]  #: "stop", "length", "tool_calls" or "cancelled" in the last part of the choice

    @classmethod
    def of(cls, native: tuple) -> Delta:
        choice, finish, text, reasoning, calls, tokens, logprobs = native
        rows = None if logprobs is None else [TokenLogprob(*row) for row in logprobs]
        return cls(text, reasoning, tokens, json.loads(calls) if calls else [], rows, choice, FINISH_REASONS[finish])


@dataclasses.dataclass
class Choice:
    text: str = ""
    reasoning: str = ""
    tokens: list[int] = dataclasses.field(default_factory=list)
    tool_calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    logprobs: Optional[list[TokenLogprob]] = None
    finish_reason: Optional[str] = None

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.reasoning += delta.reasoning
        self.tokens += delta.tokens
        if delta.logprobs is not None:
            self.logprobs = (self.logprobs or []) + delta.logprobs
        self.finish_reason = delta.finish_reason or self.finish_reason
        for part in delta.tool_calls:
            if part["index"] == len(self.tool_calls):
                self.tool_calls.append({"id": part["id"], "type": "function", "function": {"name": part["function"]["name"], "arguments": ""}})
            self.tool_calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]


@dataclasses.dataclass
class Output:
    """The answer to one prompt. `text` and the like are those of its first choice."""

    choices: list[Choice]
    prompt_tokens: int = 0
    cached_tokens: int = 0  #: of these, found in the prefix cache

    text = property(lambda self: self.choices[0].text)
    reasoning = property(lambda self: self.choices[0].reasoning)
    tokens = property(lambda self: self.choices[0].tokens)
    tool_calls = property(lambda self: self.choices[0].tool_calls)
    logprobs = property(lambda self: self.choices[0].logprobs)
    finish_reason = property(lambda self: self.choices[0].finish_reason)

    @classmethod
    def empty(cls, choices: int) -> Output:
        return cls([Choice() for _ in range(choices)])
