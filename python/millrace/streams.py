"""Running requests: iterators over the parts of an answer."""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import Any, AsyncIterator, Callable, Iterator, Optional

from .outputs import Delta, Output


class Stream:
    """Iterates over the parts of an answer. Leaving a `with` block, or dropping the stream, cancels the request."""

    def __init__(self, request: Any, choices: int):
        self._request = request
        self.output = Output.empty(choices)  #: all parts so far

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        delta = take(self._request, -1, self.output)
        if delta is None:
            raise StopIteration
        return delta

    def cancel(self) -> None:
        """May be called from another thread. The stream then ends with finish_reason "cancelled"."""
        self._request.cancel()

    def close(self) -> None:
        self._request.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def take(request: Any, timeout_ms: int, output: Output) -> Any:
    """The next part: None at the end, False if nothing came in time."""
    native = request.next(timeout_ms)
    if native is None or native is False:
        if native is None:
            output.prompt_tokens, output.cached_tokens, _ = request.usage()
        return native
    delta = Delta.of(native)
    output.choices[delta.choice].add(delta)
    return delta


class _Readiness:
    """Wakes the streams of one event loop. The engine's thread writes to an eventfd, for which it needs no GIL."""

    _of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Readiness] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self.fd, self.users, self.waiting = -1, 0, set[asyncio.Event]()

    @classmethod
    def of_running_loop(cls) -> _Readiness:
        return cls._of_loops.setdefault(asyncio.get_running_loop(), cls())

    def acquire(self) -> asyncio.Event:
        if self.users == 0:
            self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            asyncio.get_running_loop().add_reader(self.fd, self._wake)
        self.users += 1
        event = asyncio.Event()
        self.waiting.add(event)
        return event

    def release(self, event: asyncio.Event) -> None:
        self.waiting.discard(event)
        self.users -= 1
        if self.users == 0:
            asyncio.get_running_loop().remove_reader(self.fd)
            os.close(self.fd)

    def _wake(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return
        for event in self.waiting:
            event.set()


class AsyncStream:
    """Iterates over the parts of an answer in an event loop. Leaving the loop over it cancels the request."""

    def __init__(self, submit: Callable[[int], Any], choices: int):
        self._submit = submit  # takes the descriptor to write to
        self._request: Optional[Any] = None
        self._cancelled = False
        self.output = Output.empty(choices)

    def cancel(self) -> None:
        self._cancelled = True
        if self._request is not None:
            self._request.cancel()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        readiness = _Readiness.of_running_loop()
        event = readiness.acquire()
        submitted = asyncio.ensure_future(asyncio.to_thread(self._submit, readiness.fd))
        try:
            # A cancelled task must not lose a request that another thread is submitting.
            self._request = request = await asyncio.shield(submitted)
            if self._cancelled:
                request.cancel()
            while True:
                event.clear()
                delta = take(request, 0, self.output)
                if delta is None:
                    return
                if delta is False:
                    await event.wait()
                else:
                    yield delta
        finally:
            if self._request is not None:
                self._request.close()
                readiness.release(event)
            else:
                submitted.add_done_callback(lambda done: _abandon(done, readiness, event))


def _abandon(submitted: asyncio.Future, readiness: _Readiness, event: asyncio.Event) -> None:
    if not submitted.cancelled() and submitted.exception() is None:
        submitted.result().close()
    readiness.release(event)
