"""Decides and acts: performs one consequential action in a web page at most once, and proves what it did.

`from executor import Executor` is the Python API. The import is lazy, so that reading a package name loads no browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executor.service import Ended, Executor
    from executor.settings import Settings

__all__ = ["Ended", "Executor", "Settings"]


def __getattr__(name: str) -> Any:
    if name in ("Ended", "Executor"):
        from executor import service

        return getattr(service, name)
    if name == "Settings":
        from executor.settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
