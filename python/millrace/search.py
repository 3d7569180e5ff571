"""Search for good answers over a tree of continuations, under a hard budget of tokens."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._extension import TreeSearch
from .sampling import SamplingParams

if TYPE_CHECKING:
    from .llm import LLM


@dataclasses.dataclass
class Found:
    """One answer of a search."""

    text: str
    tokens: list[int]
    value: float
    finish_reason: str  #: "stop", or "length" if the budget or max_tokens cut it


@dataclasses.dataclass
class SearchResult:
    answers: list[Found]  #: best first
    spent_tokens: int  #: at most the budget

    text = property(lambda self: self.answers[0].text)


def search(llm: LLM, prompt: list[int], budget_tokens: int, value: Optional[Callable[[str], float]], sampling: SamplingParams, *,
           width: int, segment_tokens: int, parallel: int, beam: int, lora: Optional[str]) -> SearchResult:  # fmt: skip
    room = llm.context - len(prompt)
    if room < 1:
        raise ValueError(f"the prompt has {len(prompt)} tokens and leaves no room in a context of {llm.context}")
    tree = TreeSearch(budget=budget_tokens, width=width, segment=segment_tokens, longest=min(sampling.max_tokens or room, room, budget_tokens), parallel=parallel, beam=beam)
    seed = sampling.seed or 0
    drawn = 0
    while round_ := tree.next_round():
        prompts, settings = [], []
        for node, children, tokens in round_:
            # Every expansion draws from another seed, so that a node expanded again gets other children.
            prompts.append(prompt + tree.tokens(node))
            settings.append(dataclasses.replace(sampling, n=children, max_tokens=tokens, seed=seed + drawn, logprobs=0))
            drawn += 1
        for (node, _, _), output in zip(round_, llm._run_each(prompts, settings, lora)):
            tree.take(node, [_child(llm, tree, node, choice, value) for choice in output.choices])
    return SearchResult([_found(llm, tree, node) for node in tree.answers()], tree.spent)


def _child(llm: LLM, tree: Any, node: int, choice: Any, value: Optional[Callable[[str], float]]) -> tuple:
    scored = choice.logprobs or []
    tokens = [row.token for row in scored]
    logprob = sum(row.logprob for row in scored)
    ended = choice.finish_reason == "stop"
    whole = tree.tokens(node) + tokens
    if value is None:
        worth = (tree.logprob(node) + logprob) / max(1, len(whole))
    else:
        worth = float(value(llm.tokenizer.decode(whole)))
    return tokens, len(tokens) + ended, worth, logprob, ended


def _found(llm: LLM, tree: Any, node: int) -> Found:
    tokens = tree.tokens(node)
    return Found(llm.tokenizer.decode(tokens), tokens, tree.value(node), "stop" if tree.ended(node) else "length")
