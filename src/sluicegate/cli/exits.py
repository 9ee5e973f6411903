"""The exit codes of `sluicegate`, and which error leads to which; `docs/cli.md` has the same table."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["EXIT_CODES", "ExitCode", "exit_code_of"]


class ExitCode(IntEnum):
    """How a command ended. The numbers are kept from release to release."""

    DONE = 0
    FINDING = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    LEASE_LOST = 5
    UNKNOWN = 6
    INTERNAL = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


EXIT_CODES = {
    ExitCode.DONE: "The command did what it was asked for.",
    ExitCode.FINDING: "It ran and has a finding: nothing to claim, messages failed, not found, a check is not met.",
    ExitCode.USAGE: "An argument, the configuration or the input cannot be used.",
    ExitCode.UNREACHABLE: "Redis cannot be reached or is not ready; try again later.",
    ExitCode.REFUSED: "Redis or the queue refuses: missing rights, no room, a key of another type.",
    ExitCode.LEASE_LOST: "The lease expired or another consumer has it; nothing more was settled.",
    ExitCode.UNKNOWN: "A publish was sent, and its outcome or durability is not confirmed.",
    ExitCode.INTERNAL: "A bug of this program; please report it.",
    ExitCode.INTERRUPTED: "Ctrl-C ended it.",
    ExitCode.BROKEN_PIPE: "The reader of its output went away, as `head` does.",
    ExitCode.TERMINATED: "SIGTERM ended it.",
}
"""What each exit code says."""

# By class name, since the errors of the server load redis-py. The first name among the classes of an error decides.
_BY_NAME = {
    "LeaseLostError": ExitCode.LEASE_LOST,
    "PublishUnknownError": ExitCode.UNKNOWN,
    "NotDurableError": ExitCode.UNKNOWN,
    "EvictionPolicyError": ExitCode.REFUSED,
    "RedisAccessError": ExitCode.REFUSED,
    "RedisMemoryError": ExitCode.REFUSED,
    "WrongKeyTypeError": ExitCode.REFUSED,
    "LuaScriptError": ExitCode.REFUSED,
    "QueueBackpressureError": ExitCode.REFUSED,
    "RedisUnavailableError": ExitCode.UNREACHABLE,
    "UnsafeFolderError": ExitCode.USAGE,
    "EmbeddedServerError": ExitCode.UNREACHABLE,
    "ConfigurationError": ExitCode.USAGE,
    "PayloadTooLargeError": ExitCode.USAGE,
    "PayloadTooDeepError": ExitCode.USAGE,
    "RedisMessageQueueError": ExitCode.FINDING,
    "FileNotFoundError": ExitCode.USAGE,
    "PermissionError": ExitCode.USAGE,
    "IsADirectoryError": ExitCode.USAGE,
    "NotADirectoryError": ExitCode.USAGE,
    "OSError": ExitCode.FINDING,
}


def exit_code_of(error: BaseException) -> ExitCode | None:
    """Return the exit code for an error of the library or the system; None for one that is a bug."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return ExitCode.BROKEN_PIPE
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_NAME:
            return _BY_NAME[kind.__name__]
    return None
