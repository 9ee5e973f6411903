"""Starts `sluicegate`, or says in one line what is not installed for it."""

from __future__ import annotations

import sys

from sluicegate.extras import extra_needed

__all__ = ["main"]


def main() -> int:
    """Run the command that the arguments name, and return its exit code: 2 without the extra `cli`."""
    try:
        with extra_needed("cli", "the command line"):
            from sluicegate.cli import main as loaded
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return loaded.main()


if __name__ == "__main__":
    sys.exit(main())
