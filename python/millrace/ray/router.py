"""Affinity as a request router of Ray Serve."""

from __future__ import annotations

from typing import List, Optional

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from .affinity import Affinity


class PrefixRouter(RequestRouter):
    """Requests are passed on with the argument `prefix`, the keys of prefix_keys()."""

    def initialize_state(self, slack: int = 8):
        self._affinity = Affinity(slack)
        self._open: dict[ReplicaID, int] = {}

    async def choose_replicas(
        self, candidate_replicas: List[RunningReplica], pending_request: Optional[PendingRequest] = None
    ) -> List[List[RunningReplica]]:
        if not candidate_replicas:
            return []
        replicas = {replica.replica_id: replica for replica in candidate_replicas}
        loads = {name: self._open.get(name, 0) for name in replicas}
        wanted = replicas[self._affinity.choose(_keys(pending_request), loads)]
        others = sorted((r for r in candidate_replicas if r is not wanted), key=lambda r: loads[r.replica_id])
        return [[wanted]] + [[other] for other in others]  # the others where the wanted one takes no more requests

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result) -> None:
        self._open[replica_id] = self._open.get(replica_id, 0) + 1
        self._affinity.remember(_keys(pending_request), replica_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._open[replica_id] = max(0, self._open.get(replica_id, 0) - 1)

    def on_replica_actor_died(self, replica_id: ReplicaID):
        self._open.pop(replica_id, None)
        super().on_replica_actor_died(replica_id)


def _keys(request: Optional[PendingRequest]) -> List[str]:
    return request.kwargs.get("prefix", []) if request else []
