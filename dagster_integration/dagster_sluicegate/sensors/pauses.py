"""How long runs that ended badly hold a gate shut."""

from __future__ import annotations

from dagster_sluicegate.sensors.runs import MAX_DELAY_SECONDS, Failures, History

__all__ = ["waits_after_failures", "waits_for_next_attempt"]


def waits_for_next_attempt(
    history: History, delay_seconds: float, *, unclaimed: int = 0, how: str = " without claiming"
) -> str:
    """Return why a run that ended holds the gate shut for the next attempt; "" if it does not.

    Args:
        history: of the generation.
        delay_seconds: after the first attempt, doubled with each further one, an hour at most.
        unclaimed: how many attempts of the generation are unfinished.
        how: the attempts ended, in words.
    """
    if not history.ended_run_id:
        return ""
    repeats = max(0, history.next_attempt - 1 - unclaimed)
    remaining = _doubled(delay_seconds, repeats) - history.ended_seconds_ago
    if remaining <= 0:
        return ""
    return (
        f"run {history.ended_run_id} ended as {history.ended_status}{how}, attempt {history.next_attempt} follows in "
        f"{remaining:.0f} s"
    )


def waits_after_failures(failures: Failures, delay_seconds: float) -> str:
    """Return why runs that failed hold the gate shut; "" if they do not.

    Args:
        failures: the newest runs that failed one after the other.
        delay_seconds: after the first of them, doubled with each further one, an hour at most.
    """
    if not failures.count:
        return ""
    remaining = _doubled(delay_seconds, failures.count - 1) - failures.seconds_ago
    if remaining <= 0:
        return ""
    runs = "the last run" if failures.count == 1 else f"the last {failures.count} runs"
    return f"{runs} failed, the next follows in {remaining:.0f} s"


def _doubled(seconds: float, times: int) -> float:
    """Return a delay that doubles, an hour at most."""
    return min(seconds * 2.0 ** min(times, 30), MAX_DELAY_SECONDS)  # a float bounds the exponent
