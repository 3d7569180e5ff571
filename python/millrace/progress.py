"""Progress bars by tqdm, if it is installed and somebody looks: on a terminal or in a notebook."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional


def _somebody_looks() -> bool:
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def bar(wanted: Optional[bool], **options: Any) -> Any:
    """A tqdm bar, or None. `wanted`: None decides by itself; True without tqdm is an error."""
    if wanted is False or (wanted is None and not _somebody_looks()):
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if wanted:
            raise
        return None
    return tqdm(**options)


class Loading:
    """Shows bytes while a model loads. The bar appears with the first report, once the total is known."""

    def __init__(self, wanted: Optional[bool], report: Optional[Callable[[int, int], Any]] = None):
        self._wanted, self._report, self._bar, self._tried = wanted, report, None, False

    def __call__(self, done: int, total: int) -> None:
        if self._report is not None:
            self._report(done, total)
        if done > 0 and not self._tried:
            self._tried = True
            self._bar = bar(self._wanted, total=total, unit="B", unit_scale=True, desc="loading")
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
