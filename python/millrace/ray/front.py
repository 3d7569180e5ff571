"""The HTTP side: finds a replica for each request, and another one where a replica is lost before it has answered."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, AsyncIterator, Tuple

from ray.exceptions import RayActorError
from ray.serve.exceptions import DeploymentUnavailableError, ReplicaUnavailableError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from .prefixes import prefix_keys

LOST = (RayActorError, ReplicaUnavailableError)
HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


class Front:
    def __init__(self, replicas: Any, board: Any, retry_seconds: float):
        self._replicas, self._board, self._retry_seconds = replicas, board, retry_seconds

    async def __call__(self, request: Request) -> Response:
        if request.url.path == "/metrics":
            return PlainTextResponse(await self._board.read.remote(), media_type="text/plain; version=0.0.4")
        try:
            head, rest = await self._begin(request)
        except LOST + (DeploymentUnavailableError,):
            return Response(_error("no replica could answer in time"), 503, {"retry-after": "5"}, "application/json")
        headers = {name: value for name, value in head["headers"] if name.lower() not in HOP_BY_HOP}
        if rest is None:
            return Response(head["first"], head["status"], headers)
        return StreamingResponse(_stream(head["first"], rest), head["status"], headers)

    async def _begin(self, request: Request) -> Tuple[dict, Any]:
        """The beginning of a stream, or a whole body. Nothing has gone to the client yet, so a lost replica's request is
        given to another one."""
        body = await request.body()
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        deadline = time.monotonic() + self._retry_seconds
        while True:
            answer = self._replicas.answer.options(stream=True).remote(request.method, target, headers, body, prefix=prefix_keys(body))
            try:
                pieces = aiter(answer)
                head = await anext(pieces)
                if _is_stream(head):
                    return head, pieces
                head["first"] += b"".join([piece async for piece in pieces])
                return head, None
            except LOST:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)


def _is_stream(head: dict) -> bool:
    kinds = [value for name, value in head["headers"] if name.lower() == "content-type"]
    return any(kind.startswith(("text/event-stream", "application/x-ndjson")) for kind in kinds)


async def _stream(first: bytes, rest: Any) -> AsyncIterator[bytes]:
    yield first
    try:
        async for piece in rest:
            yield piece
    except LOST:
        yield b"\n\ndata: " + _error("the replica was lost during the answer").encode() + b"\n\n"


def _error(text: str) -> str:
    return json.dumps({"error": {"message": text, "type": "server_error", "code": "replica_lost"}})
