"""Low-rank adapters as LLM and Server take them."""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence, Union

Path = Union[str, os.PathLike]
Loras = Union[None, Path, Sequence[Path], Mapping[str, Path]]


def pairs(loras: Loras) -> Optional[list[tuple[str, str]]]:
    """Names and paths; an empty name is that of the file or folder. None: the model has no adapters, now or later."""
    if loras is None:
        return None
    if isinstance(loras, Mapping):
        return [(name, os.fspath(path)) for name, path in loras.items()]
    if isinstance(loras, (str, os.PathLike)):
        loras = [loras]
    return [("", os.fspath(path)) for path in loras]
