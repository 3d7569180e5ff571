"""A replica: the server in the replica's process, and a way to it through Ray."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Dict, Sequence, Union

import aiohttp
from ray import serve

from ..server import Server

BYTES_PER_TOKEN = 4  # of JSON with a prompt in it, roughly: queued tokens are only compared with a threshold
POST_SECONDS = 1.0


class Replica:
    def __init__(self, model: str, board: Any, options: Dict[str, Any]):
        self._server = Server(model, progress=False, **options)
        self._session = None
        self._queued_tokens = self._running = 0
        self._posting = asyncio.get_running_loop().create_task(self._post_metrics(board, serve.get_replica_context().replica_id.unique_id))

    async def answer(
        self, method: str, target: str, headers: Sequence[tuple], body: bytes, prefix: Sequence[str] = ()
    ) -> AsyncIterator[Union[Dict[str, Any], bytes]]:
        """First the status and the headers, together with the first bytes of the body; then the rest of the body."""
        tokens = len(body) // BYTES_PER_TOKEN
        self._queued_tokens += tokens
        self._running += 1
        try:
            async with self._http().request(method, self._address + target, headers=headers, data=body) as response:
                first = await response.content.readany()
                self._queued_tokens -= tokens
                tokens = 0
                yield {"status": response.status, "headers": list(response.headers.items()), "first": first}
                async for piece in response.content.iter_any():
                    yield piece
        finally:
            self._queued_tokens -= tokens
            self._running -= 1

    def record_autoscaling_stats(self) -> Dict[str, float]:
        return {"queued_tokens": self._queued_tokens, "running": self._running}

    async def check_health(self) -> None:
        async with self._http().get(self._address + "/health") as response:
            response.raise_for_status()

    def __del__(self) -> None:
        if hasattr(self, "_server"):
            self._server.stop(0)  # Serve has waited for open requests

    @property
    def _address(self) -> str:
        return self._server.url.removesuffix("/v1")

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            endless = aiohttp.ClientTimeout(total=None)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=endless, auto_decompress=False)
        return self._session

    async def _post_metrics(self, board: Any, name: str) -> None:
        while True:
            try:
                async with self._http().get(self._address + "/metrics") as response:
                    await board.post.remote(name, await response.text())
            except Exception:  # the board may be away for a while: metrics must not end a replica
                pass
            await asyncio.sleep(POST_SECONDS)
