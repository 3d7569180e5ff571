"""The metrics of all replicas in one place."""

from __future__ import annotations

import re
import time
from typing import Callable, Dict, List, Tuple

SECONDS_TO_FORGET = 15.0
_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (.+)$")


class Board:
    """Replicas post their metrics here. A replica that has stopped posting is left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._pages: Dict[str, Tuple[float, str]] = {}

    def post(self, replica: str, page: str) -> None:
        self._pages[replica] = (self._clock(), page)

    def read(self) -> str:
        oldest = self._clock() - SECONDS_TO_FORGET
        self._pages = {name: entry for name, entry in self._pages.items() if entry[0] >= oldest}
        return merge({name: page for name, (_, page) in sorted(self._pages.items())})


def merge(pages: Dict[str, str]) -> str:
    """One page of Prometheus' text format; every sample gets the label `replica`. Samples of one family stay together, as
    the format wants."""
    families: Dict[str, List[str]] = {}
    comments: Dict[str, List[str]] = {}
    for replica, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith("# ") and len(line.split(" ", 3)) >= 3:
                family = line.split(" ", 3)[2]
                if line not in comments.setdefault(family, []):
                    comments[family].append(line)
            elif sample := _SAMPLE.match(line):
                name, labels, value = sample.groups()
                labels = f'{labels},replica="{replica}"' if labels else f'replica="{replica}"'
                families.setdefault(family or name, []).append(f"{name}{{{labels}}} {value}")
    lines = [line for family, samples in families.items() for line in comments.get(family, []) + samples]
    return "\n".join(lines) + "\n" if lines else ""
