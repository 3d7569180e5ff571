"""The server of `millrace serve` in this process."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence, Union

from ._extension import NativeServer
from .lora import Loras, pairs
from .progress import Loading


class Server:
    """Serves a model over HTTP, as OpenAI's API, until it is stopped. Options of the model are those of LLM; clients choose
    an adapter of `lora` by its name as their model.

    >>> with millrace.Server("default") as server:
    ...     client = openai.OpenAI(base_url=server.url, api_key="none")
    """

    def __init__(self, model: Union[str, os.PathLike] = "default", *, host: str = "127.0.0.1", port: int = 0, name: Optional[str] = None,
                 api_keys: Union[None, Sequence[str], Mapping[str, str]] = None, lora: Loras = None, progress: Optional[bool] = None, **options: Any):  # fmt: skip
        lines = [f"{who} {key}" for who, key in api_keys.items()] if isinstance(api_keys, Mapping) else api_keys
        loading = Loading(progress)
        try:
            self._native = NativeServer(os.fspath(model), host, port, name, "\n".join(lines) if lines else None, loading, lora=pairs(lora), **options)
        finally:
            loading.close()
        self.host, self.port = host, self._native.port

    @property
    def url(self) -> str:
        """The base URL for OpenAI's clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"

    def stop(self, drain_seconds: float = 30) -> None:
        """Running requests may take this long to finish."""
        self._native.stop(int(drain_seconds * 1000))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
