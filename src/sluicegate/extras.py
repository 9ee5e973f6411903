"""Names the extra of the package that brings a missing library, where an import would only name the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["extra_needed"]


@contextmanager
def extra_needed(extra: str, user: str) -> Iterator[None]:
    """Explain an import that fails in the block.

    Args:
        extra: brings what the block imports.
        user: what needs it, such as `sluicegate.web`.

    Raises:
        ModuleNotFoundError: a library is missing; the text says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "sluicegate"):
            raise
        raise ModuleNotFoundError(
            f"{user} needs {missing}, which is not installed: pip install 'sluicegate[{extra}]'", name=error.name
        ) from None
