"""A loaded model: answers, embeddings, logits."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from ._extension import Model
from .lora import Loras, Path, pairs
from .outputs import Output
from .progress import Loading, bar
from .sampling import SamplingParams, merged
from .search import SearchResult, search
from .streams import AsyncStream, Stream, take
from .tokenizer import Message, Tokenizer

Prompt = Union[str, Sequence[int]]
Conversation = Union[str, Sequence[Message]]
_LOGITS, _HIDDEN_STATES, _EMBEDDING_MEAN, _EMBEDDING_LAST, _EMBEDDING = range(5)


def _is_tokens(prompt: Any) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and not isinstance(prompt[0], (str, list, tuple)) and not hasattr(prompt[0], "__len__")


def _is_conversation(messages: Any) -> bool:
    return isinstance(messages, str) or (len(messages) > 0 and isinstance(messages[0], dict))


class LLM:
    """Loads a model: a .gguf file, a Hugging Face folder, or a name from `millrace models`, which is downloaded once.

    Any thread may use it, and requests of several threads run together in one batch."""

    def __init__(
        self,
        model: Union[str, os.PathLike] = "default",
        *,
        device: str = "auto",
        threads: int = 0,
        context: int = 0,
        exact: bool = False,
        kv_type: Optional[str] = None,
        sequences: int = 32,
        kv_tokens: int = 32768,
        prefix_cache: bool = True,
        batch_invariant: bool = False,
        chat_template: Optional[str] = None,
        draft: Union[None, str, os.PathLike] = "lookup",
        lora: Loras = None,
        progress: Optional[bool] = None,
        on_progress: Optional[Callable[[int, int], Any]] = None,
    ):
        """device: "cpu", "cuda", "cuda:N" or "auto". threads: 0 takes one per usable core. context: positions per sequence,
        0 for the model's, or what memory allows. exact: f32 throughout. kv_type: f32, f16, bf16, q8_0 or fp8. sequences: run
        at the same time, at most. kv_tokens: positions of the KV cache for all sequences together. draft: the source of tokens
        that a step verifies together: "lookup" (repetitions of the text), "mtp" (the model's own heads), "auto" (mtp if the
        model has such heads, else lookup), "none", a smaller model of the same vocabulary, or an EAGLE-3 folder. lora: low-rank
        adapters, {"name": path} or a list of paths, which have the names of their files; {} if load_lora() brings some later.
        on_progress: called with bytes done and in all."""
        loading = Loading(progress, on_progress)
        try:
            self._native = Model(
                os.fspath(model), loading, device=device, threads=threads, context=context, exact=exact, kv_type=kv_type, sequences=sequences,
                kv_tokens=kv_tokens, prefix_cache=prefix_cache, batch_invariant=batch_invariant, chat_template=chat_template,
                draft="none" if draft is None else os.fspath(draft), lora=pairs(lora))  # fmt: skip
        finally:
            loading.close()
        self.tokenizer = Tokenizer(self._native)
        info = self._native.info()
        self.context: int = info["context"]
        self.hidden_size: int = info["hidden"]
        self.vocab_size: int = info["vocabulary"]

    # Whole answers. A single prompt gives one Output, a list of prompts a list; they run together.

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]], sampling_params: Optional[SamplingParams] = None, *, lora: Optional[str] = None,
                 progress: Optional[bool] = None, **params: Any) -> Any:  # fmt: skip
        """Continues text or tokens as they are, without a chat template. `lora`: the name of an adapter, here and below."""
        sampling = merged(sampling_params, params)
        if isinstance(prompts, str) or _is_tokens(prompts):
            return self._run([self._prompt(prompts, sampling, lora)], sampling, False)[0]
        return self._run([self._prompt(prompt, sampling, lora) for prompt in prompts], sampling, progress)

    def chat(self, messages: Union[Conversation, Sequence[Conversation]], sampling_params: Optional[SamplingParams] = None, *, tools: Optional[Sequence[Any]] = None,
             lora: Optional[str] = None, progress: Optional[bool] = None, fields: Optional[dict] = None, **params: Any) -> Any:  # fmt: skip
        """Answers a message or a conversation, or several. `fields`: further fields of POST /v1/chat/completions, such as
        tool_choice, reasoning_effort, thinking_budget and chat_template_kwargs."""
        sampling = merged(sampling_params, params)
        if _is_conversation(messages):
            return self._run([self._conversation(messages, sampling, tools, fields, lora)], sampling, False)[0]
        return self._run([self._conversation(one, sampling, tools, fields, lora) for one in messages], sampling, progress)

    def _run_each(self, prompts: Sequence[Sequence[int]], settings: Sequence[SamplingParams], lora: Optional[str]) -> list[Output]:
        """Runs prompts of tokens together, each with its own settings and the same number of choices."""
        return self._run([self._prompt(prompt, sampling, lora) for prompt, sampling in zip(prompts, settings)], settings[0], False)

    def _run(self, requests: list[dict], sampling: SamplingParams, progress: Optional[bool]) -> list[Output]:
        outputs = [Output.empty(sampling.n or 1) for _ in requests]
        started: list[Any] = []
        shown = bar(progress, total=len(requests), unit="prompt") if len(requests) > 1 else None
        try:
            for request in requests:
                started.append(self._native.submit(**request, whole=True))
            for request, output in zip(started, outputs):
                while take(request, -1, output) is not None:
                    pass
                if shown is not None:
                    shown.update()
            return outputs
        finally:
            for request in started:  # after an exception, cancels the others
                request.close()
            if shown is not None:
                shown.close()

    # Streams.

    def stream(self, prompt: Union[Prompt, Sequence[Message]], sampling_params: Optional[SamplingParams] = None, *, tools: Optional[Sequence[Any]] = None,
               lora: Optional[str] = None, fields: Optional[dict] = None, **params: Any) -> Stream:  # fmt: skip
        """Streams the continuation of text or tokens, or, for a list of messages, the answer in a chat."""
        sampling = merged(sampling_params, params)
        return Stream(self._native.submit(**self._any(prompt, sampling, tools, fields, lora), whole=False), sampling.n or 1)

    def astream(self, prompt: Union[Prompt, Sequence[Message]], sampling_params: Optional[SamplingParams] = None, *, tools: Optional[Sequence[Any]] = None,
                lora: Optional[str] = None, fields: Optional[dict] = None, **params: Any) -> AsyncStream:  # fmt: skip
        """As stream(), for `async for`."""
        sampling = merged(sampling_params, params)
        request = self._any(prompt, sampling, tools, fields, lora)
        return AsyncStream(lambda fd: self._native.submit(**request, whole=False, ready_fd=fd), sampling.n or 1)

    async def agenerate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None, *, lora: Optional[str] = None, **params: Any) -> Output:
        sampling = merged(sampling_params, params)
        return await self._arun(self._prompt(prompt, sampling, lora), sampling)

    async def achat(self, messages: Conversation, sampling_params: Optional[SamplingParams] = None, *, tools: Optional[Sequence[Any]] = None,
                    lora: Optional[str] = None, fields: Optional[dict] = None, **params: Any) -> Output:  # fmt: skip
        sampling = merged(sampling_params, params)
        return await self._arun(self._conversation(messages, sampling, tools, fields, lora), sampling)

    async def _arun(self, request: dict, sampling: SamplingParams) -> Output:
        stream = AsyncStream(lambda fd: self._native.submit(**request, whole=True, ready_fd=fd), sampling.n or 1)
        async for _ in stream:
            pass
        return stream.output

    # Search.

    def search(self, prompt: Prompt, budget_tokens: int, *, value: Optional[Callable[[str], float]] = None,
               sampling_params: Optional[SamplingParams] = None, width: int = 4, segment_tokens: int = 32, parallel: int = 4, beam: int = 16,
               lora: Optional[str] = None, **params: Any) -> SearchResult:  # fmt: skip
        """Expands a tree of continuations of text or tokens, without a chat template. All branches together generate
        at most `budget_tokens`. `value` gives the worth of an answer so far, from its text; without it the mean
        log-probability of its tokens decides. `width` branches per expansion, each of up to `segment_tokens`."""
        sampling = merged(sampling_params, params)
        if sampling.temperature is None:
            sampling = dataclasses.replace(sampling, temperature=0.8)
        return search(self, self._tokens(prompt), budget_tokens, value, sampling, width=width, segment_tokens=segment_tokens, parallel=parallel, beam=beam, lora=lora)

    # Vectors, as NumPy arrays, or without NumPy as arrays with __dlpack__, which torch and others read without a copy.

    def embed(self, texts: Union[Prompt, Sequence[Prompt]], *, pooling: Optional[str] = None, lora: Optional[str] = None) -> Any:
        """Embeddings: [hidden] for a text, [texts, hidden] for several.

        pooling: None for what the model's files say, else "mean" or "last", scaled to length 1.
        """
        kinds = {None: _EMBEDDING, "mean": _EMBEDDING_MEAN, "last": _EMBEDDING_LAST}
        if pooling not in kinds:
            raise ValueError(f"pooling {pooling!r}: one of mean, last")
        if isinstance(texts, str) or _is_tokens(texts):
            return self._compute(kinds[pooling], texts, lora)
        rows = [self._compute(kinds[pooling], text, lora) for text in texts]
        try:
            import numpy
        except ImportError:
            return rows
        return numpy.stack(rows) if rows else numpy.empty((0, self.hidden_size), numpy.float32)

    def logits(self, prompt: Prompt, *, lora: Optional[str] = None) -> Any:
        """Of every position: [tokens, vocabulary]."""
        return self._compute(_LOGITS, prompt, lora)

    def hidden_states(self, prompt: Prompt, *, lora: Optional[str] = None) -> Any:
        """Of every position, after the final norm: [tokens, hidden]."""
        return self._compute(_HIDDEN_STATES, prompt, lora)

    def _compute(self, kind: int, prompt: Prompt, lora: Optional[str]) -> Any:
        return _array(self._native.compute(kind, self._tokens(prompt), lora or ""))

    # Low-rank adapters.

    def load_lora(self, name: str, path: Path, *, replace: bool = False) -> None:
        """Loads an adapter, a PEFT folder or a GGUF file, between two steps. `replace`: takes the place of one of this
        name, and running requests keep the old one. The model must have been loaded with `lora`, which may be empty."""
        self._native.load_lora(name, os.fspath(path), replace)

    def unload_lora(self, name: str) -> None:
        """Requests that use the adapter still end with it."""
        self._native.unload_lora(name)

    @property
    def loras(self) -> list[str]:
        """The names of the loaded adapters."""
        return self._native.loras()

    def close(self) -> None:
        """Frees the model once its last request has ended."""
        self._native.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Arguments of Model.submit().

    def _tokens(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else _ids(prompt)

    def _prompt(self, prompt: Prompt, sampling: SamplingParams, lora: Optional[str]) -> dict:
        given = {"prompt": prompt} if isinstance(prompt, str) else {"tokens": _ids(prompt)}
        return {**given, "fields": json.dumps(sampling.fields(chat=False)), "lora": lora}

    def _conversation(self, messages: Conversation, sampling: SamplingParams, tools: Optional[Sequence[Any]], more: Optional[dict],
                      lora: Optional[str]) -> dict:  # fmt: skip
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        fields = sampling.fields(chat=True)
        if tools:
            fields["tools"] = list(tools)
        return {"messages": json.dumps(list(messages)), "fields": json.dumps({**fields, **(more or {})}), "lora": lora}

    def _any(self, prompt: Any, sampling: SamplingParams, tools: Optional[Sequence[Any]], fields: Optional[dict], lora: Optional[str]) -> dict:
        if not isinstance(prompt, str) and _is_conversation(prompt):
            return self._conversation(prompt, sampling, tools, fields, lora)
        if tools or fields:
            raise ValueError("tools and fields belong to a chat: give a list of messages")
        return self._prompt(prompt, sampling, lora)


def _ids(tokens: Iterable[int]) -> list[int]:
    return [int(token) for token in tokens]


def _array(native: Any) -> Any:
    try:
        import numpy
    except ImportError:
        return native
    return numpy.from_dlpack(native)
