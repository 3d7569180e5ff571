"""Which replica a request should go to."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Hashable, Mapping, Sequence


class Affinity:
    """Remembers the replica that served each prefix. Loads are numbers of open requests."""

    def __init__(self, slack: int = 8, most_keys: int = 100_000):
        self._slack, self._most_keys = slack, most_keys
        self._places: OrderedDict[str, Hashable] = OrderedDict()

    def choose(self, keys: Sequence[str], loads: Mapping[Hashable, int]) -> Hashable:
        """The replica with the longest known prefix, unless it has `slack` requests more than the idlest one."""
        idlest = min(loads, key=lambda replica: (loads[replica], str(replica)))
        wanted = next((self._places[key] for key in reversed(keys) if self._places.get(key) in loads), None)
        if wanted is None and keys:
            wanted = self._by_hash(keys[0], loads)
        if wanted is None or loads[wanted] >= loads[idlest] + self._slack:
            return idlest
        return wanted

    def remember(self, keys: Sequence[str], replica: Hashable) -> None:
        for key in keys:
            self._places[key] = replica
            self._places.move_to_end(key)
        while len(self._places) > self._most_keys:
            self._places.popitem(last=False)

    @staticmethod
    def _by_hash(key: str, loads: Mapping[Hashable, int]) -> Hashable:
        """Rendezvous hashing: every front chooses the same replica for a conversation that it sees for the first time, and
        a replica that joins or leaves moves only its own share."""
        return max(loads, key=lambda replica: hashlib.blake2b(f"{key} {replica}".encode(), digest_size=8).digest())
