"""Import what takes long without blocking an event loop."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

__all__ = ["import_async"]


async def import_async(module: str) -> Any:
    """
    Return a module, which is imported in a thread: a triggerer's other triggers continue meanwhile.

    :param module: its full name.
    """
    return sys.modules.get(module) or await asyncio.to_thread(importlib.import_module, module)
