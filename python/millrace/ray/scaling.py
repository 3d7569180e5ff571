"""How many replicas the waiting work needs."""

from __future__ import annotations

import math
from typing import Any, Dict, Tuple


class QueuedTokens:
    """A policy of Ray Serve: so many replicas that each has at most `queued_tokens` prompt tokens that wait and at most
    `running` requests that are answered."""

    def __init__(self, queued_tokens: int = 4096, running: int = 32):
        self._queued_tokens, self._running = queued_tokens, running

    def __call__(self, ctx: Any) -> Tuple[int, Dict[str, Any]]:
        if not ctx.running_replicas:
            return ctx.target_num_replicas, {}
        return self.wanted(_sum_of_newest(ctx, "queued_tokens"), _sum_of_newest(ctx, "running")), {}

    def wanted(self, queued_tokens: float, running: float) -> int:
        return max(1, math.ceil(queued_tokens / self._queued_tokens), math.ceil(running / self._running))


def _sum_of_newest(ctx: Any, name: str) -> float:
    series = (ctx.raw_metrics or {}).get(name, {})
    return sum(values[-1].value for replica, values in series.items() if values and replica in ctx.running_replicas)
