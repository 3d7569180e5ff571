"""The application that a config file of Ray Serve names: `import_path: millrace.ray:app`."""

from __future__ import annotations

from typing import Any, Dict, Optional

from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from .board import Board
from .front import Front
from .replica import Replica
from .router import PrefixRouter
from .scaling import QueuedTokens


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str = "default"
    options: Dict[str, Any] = {}  # of millrace.Server: threads, context, sequences, api_keys, ...
    resources: Dict[str, Any] = {}  # of one replica, as Ray has them: num_cpus, num_gpus, memory, ...
    min_replicas: int = 1
    max_replicas: int = 1
    queued_tokens: int = 4096  # prompt tokens that may wait at one replica, on average, before another starts
    running: int = 32  # requests that one replica answers at once before another starts
    requests: int = 256  # that one replica takes at most; further ones wait at the front
    slack: int = 8  # requests that the replica with a prefix may have more than the idlest one
    fronts: int = 1
    drain_seconds: float = 600
    retry_seconds: float = 60
    downscale_seconds: float = 300
    upscale_seconds: float = 5


def app(settings: Optional[Dict[str, Any]] = None) -> serve.Application:
    s = Settings.model_validate(settings or {})
    scaling = AutoscalingConfig(
        min_replicas=s.min_replicas, initial_replicas=s.min_replicas, max_replicas=s.max_replicas,
        upscale_delay_s=s.upscale_seconds, downscale_delay_s=s.downscale_seconds,
        policy=AutoscalingPolicy(policy_function=QueuedTokens, policy_kwargs={"queued_tokens": s.queued_tokens, "running": s.running}),
    )  # fmt: skip
    router = RequestRouterConfig(request_router_class=PrefixRouter, request_router_kwargs={"slack": s.slack})
    board = serve.deployment(Board, num_replicas=1, ray_actor_options={"num_cpus": 0}).bind()
    replicas = serve.deployment(
        Replica, autoscaling_config=scaling, request_router_config=router, ray_actor_options=s.resources,
        max_ongoing_requests=s.requests, graceful_shutdown_timeout_s=s.drain_seconds,
    ).bind(s.model, board, s.options)  # fmt: skip
    front = serve.deployment(
        Front, num_replicas=s.fronts, max_ongoing_requests=s.requests * s.max_replicas, ray_actor_options={"num_cpus": 0}
    )
    return front.bind(replicas, board, s.retry_seconds)
