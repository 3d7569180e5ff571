"""How tokens are chosen, and the form that an answer must have."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping, Optional, Sequence, Union


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Fields that are None take the model's own defaults."""

    max_tokens: Optional[int] = None  #: None: until the model ends its answer or the context is full
    temperature: Optional[float] = None  #: 0: always the likeliest token
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    typical_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    logit_bias: Optional[Mapping[int, float]] = None
    seed: Optional[int] = None  #: the same seed gives the same text; None: drawn at random
    stop: Optional[Union[str, Sequence[str]]] = None
    n: Optional[int] = None  #: answers to each prompt
    logprobs: Optional[int] = None  #: log-probabilities of the tokens, with this many alternatives
    min_tokens: Optional[int] = None
    ignore_eos: Optional[bool] = None
    priority: Optional[int] = None  #: higher goes first

    # The form of the answer: at most one of these.
    schema: Optional[Any] = None  #: a JSON Schema: a dict, JSON text, or a class with model_json_schema() (pydantic)
    regex: Optional[str] = None
    grammar: Optional[str] = None  #: EBNF with a rule `root ::= ...`
    choice: Optional[Sequence[str]] = None

    def replace(self, **changes: Any) -> SamplingParams:
        return dataclasses.replace(self, **changes)

    def fields(self, chat: bool) -> dict[str, Any]:
        """The fields of an API request."""
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1; None: until the model ends its answer or the context is full")
        fields = {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) is not None}
        form = {"json": _schema(fields.pop("schema", None)), "regex": fields.pop("regex", None),
                "grammar": fields.pop("grammar", None), "choice": fields.pop("choice", None)}  # fmt: skip
        form = {name: value for name, value in form.items() if value is not None}
        if len(form) > 1:
            raise ValueError(f"an answer has one form, not {len(form)}: {', '.join(form)}")
        if form:
            fields["structured_outputs"] = {name: list(value) if name == "choice" else value for name, value in form.items()}
        if isinstance(fields.get("stop"), (tuple, set)):
            fields["stop"] = list(fields["stop"])
        if "logit_bias" in fields:
            fields["logit_bias"] = {str(token): bias for token, bias in fields["logit_bias"].items()}
        if chat and "logprobs" in fields:
            fields["top_logprobs"] = fields["logprobs"]
            fields["logprobs"] = True
        return fields


def _schema(schema: Any) -> Any:
    if schema is None or isinstance(schema, (dict, bool)):
        return schema
    if isinstance(schema, (str, bytes)):
        return json.loads(schema)
    if hasattr(schema, "model_json_schema"):
        return schema.model_json_schema()
    raise TypeError("schema: a dict, JSON text, or a class with model_json_schema()")


def merged(params: Optional[SamplingParams], more: Mapping[str, Any]) -> SamplingParams:
    params = params if params is not None else SamplingParams()
    known = {f.name for f in dataclasses.fields(SamplingParams)}
    for name in more:
        if name not in known:
            raise TypeError(f"unknown sampling parameter '{name}'; there are {', '.join(sorted(known))}")
    return params.replace(**more) if more else params
