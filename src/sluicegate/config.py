"""The options of a queue, checked together, and what follows from them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import checks
from sluicegate.core.deduplication import portable_key_source
from sluicegate.core.payload_limits import NO_PAYLOAD_LIMITS, PayloadLimits
from sluicegate.core.policies import DEFAULT_BACKOFF
from sluicegate.core.rules import QueueRules
from sluicegate.errors import ConfigurationError
from sluicegate.options import OPTIONS, DeclaredOptions, RetryBackoff
from sluicegate.spec import QueueSpec, describe_backoff, rebuild_backoff

__all__ = ["GONE_OPTIONS", "OPTIONS_ELSEWHERE", "RENAMED_OPTIONS", "QueueConfig", "QueueSpec"]

_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class QueueConfig(DeclaredOptions):
    """The options of one queue; `sluicegate.options` declares them.

    Raises:
        ConfigurationError: an option, or two together, that cannot work.
    """

    def __post_init__(self) -> None:
        if isinstance(self.retry_backoff, Mapping):  # as a spec carries it
            object.__setattr__(self, "retry_backoff", rebuild_backoff(self.retry_backoff))
        for option in OPTIONS.values():
            option.check(option.name, getattr(self, option.name))
        self._check_deduplication()
        self._check_lease()
        self._check_heartbeat()
        self._check_failures()
        self._check_backpressure()
        self._check_history()
        if self.json_default is not None and self.strict_payload_types:
            raise ConfigurationError(
                "json_default has no effect with strict_payload_types=True, which refuses what it would write; leave "
                "one of them out"
            )

    @property
    def at_most_once(self) -> bool:
        """Return whether messages are acked before their handler starts, because there is no visibility timeout."""
        return self.visibility_timeout_seconds is None

    @property
    def backoff(self) -> RetryBackoff:
        """Return how long a message waits after an error: by `retry_backoff`, or the default."""
        return self.retry_backoff if self.retry_backoff is not None else DEFAULT_BACKOFF

    @property
    def rules(self) -> QueueRules:
        """Return the rules that the scripts need."""
        return QueueRules(
            max_delivery_count=self.max_delivery_count or 0,
            max_lease_seconds=self.max_lease_seconds or 0,
            max_dead_length=self.max_dead_length or 0,
            completed_cap=(self.max_completed_length or 0) if self.enable_completed_queue else None,
            failed_cap=(self.max_failed_length or 0) if self.enable_failed_queue else None,
            strict=self.strict_envelope_decoding,
            stale_seconds=self.visibility_timeout_seconds or 0,
        )

    @property
    def limits(self) -> PayloadLimits:
        """Return the limits of a payload."""
        return (
            PayloadLimits(self.strict_payload_types, self.max_payload_bytes, self.max_payload_depth)
            or NO_PAYLOAD_LIMITS
        )

    def refuse_async(self) -> None:
        """Refuse async callbacks, which a synchronous queue cannot await.

        Raises:
            ConfigurationError: names the option.
        """
        for name in ("get_deduplication_key", "on_heartbeat_failure", "on_event"):
            checks.synchronous(name, getattr(self, name))

    def portable(self) -> dict[str, Any]:
        """Return the options that a spec carries, as JSON values: those that differ from the defaults.

        Callbacks and the interrupt handler belong to this process and are left out. So is a callable key function: the
        queue made from the spec consumes, and refuses to publish. A backoff other than tenacity's exponential, fixed
        and incrementing ones is left out as well: that queue uses the default, and a warning is logged here. Without a
        function for `json_default`, that queue refuses the values that it would write.
        """
        options = {
            name: getattr(self, name)
            for name, option in OPTIONS.items()
            if option.in_spec == "yes" and getattr(self, name) != option.default
        }
        source = portable_key_source(self.get_deduplication_key)
        if source is not None:
            options["get_deduplication_key"] = source
        elif self.get_deduplication_key is not None:
            options["publishes"] = False
            options.pop("deduplication_policy", None)  # a publisher's: consumers read it from the message
        if isinstance(self.json_default, str):
            options["json_default"] = self.json_default
        if self.retry_backoff is not None:
            described = describe_backoff(self.retry_backoff)
            if described is not None:
                options["retry_backoff"] = described
            else:
                _log.warning("retry_backoff=%s cannot be serialized; others use the default", type(self.retry_backoff))
        return options

    def _check_deduplication(self) -> None:
        if self.get_deduplication_key is not None:
            if self.deduplication is False:
                raise ConfigurationError("deduplication=False contradicts get_deduplication_key; leave one of them out")
            return
        if self.deduplication:
            raise ConfigurationError(
                "deduplication=True needs get_deduplication_key: a callable, a field, fields or a template"
            )
        if self.deduplication_policy != "window":
            raise ConfigurationError(
                f"deduplication_policy={self.deduplication_policy!r} needs get_deduplication_key: a callable, a field, "
                "fields or a template"
            )

    def _check_lease(self) -> None:
        timeout, longest = self.visibility_timeout_seconds, self.max_lease_seconds
        if timeout is None:
            if self.max_delivery_count is not None:
                raise ConfigurationError(
                    "visibility_timeout_seconds=None delivers at most once, so nothing can be delivered "
                    f"max_delivery_count={self.max_delivery_count} times; set max_delivery_count=None too"
                )
            if longest is not None:
                raise ConfigurationError(
                    f"max_lease_seconds={longest!r} needs a visibility timeout; visibility_timeout_seconds is None"
                )
            return
        if longest is not None and longest < timeout:
            raise ConfigurationError(
                f"max_lease_seconds={longest:g} must not be less than visibility_timeout_seconds={timeout:g}, the life "
                "of a lease that is never extended"
            )

    def _check_heartbeat(self) -> None:
        interval, timeout = self.heartbeat_interval_seconds, self.visibility_timeout_seconds
        if self.on_heartbeat_failure is not None and (interval == 0 or timeout is None):
            off = "heartbeat_interval_seconds=0" if interval == 0 else "visibility_timeout_seconds=None"
            raise ConfigurationError(f"on_heartbeat_failure needs a heartbeat, and with {off} there is none")
        if not interval:
            return
        if timeout is None:
            raise ConfigurationError(
                f"heartbeat_interval_seconds={interval:g} needs a visibility timeout; visibility_timeout_seconds is "
                "None"
            )
        if interval >= timeout / 2:
            raise ConfigurationError(
                f"heartbeat_interval_seconds={interval:g} must be less than half of "
                f"visibility_timeout_seconds={timeout:g}"
            )

    def _check_failures(self) -> None:
        if self.on_error == "bury" and self.at_most_once:
            raise ConfigurationError(
                "on_error='bury' needs a visibility timeout: with visibility_timeout_seconds=None a message is done "
                "before its handler starts"
            )

    def _check_backpressure(self) -> None:
        policy = self.pending_overload_policy
        if policy != "raise" and self.max_pending_length is None:
            raise ConfigurationError(
                f"pending_overload_policy={policy!r} needs max_pending_length: without it a queue is never full"
            )
        if policy != "drop_oldest":
            return
        if self.get_deduplication_key is not None:
            raise ConfigurationError(
                "pending_overload_policy='drop_oldest' cannot be combined with deduplication: the key of a dropped "
                "message would refuse its successors; use 'raise' or 'block'"
            )
        if self.max_delivery_count is not None:
            raise ConfigurationError(
                "pending_overload_policy='drop_oldest' cannot be combined with "
                f"max_delivery_count={self.max_delivery_count}: what should become a dead letter could be dropped "
                "unseen; set max_delivery_count=None, or use 'raise' or 'block'"
            )

    def _check_history(self) -> None:
        for kind in ("completed", "failed"):
            switch, length = f"enable_{kind}_queue", f"max_{kind}_length"
            most = getattr(self, length)
            if not getattr(self, switch) and most != OPTIONS[length].default:
                raise ConfigurationError(f"{length}={most!r} has no effect without {switch}=True; set it too")


# Options of redis-message-queue's queues and gateways that have another name here, or that nobody needs here.
RENAMED_OPTIONS = {
    "message_deduplication_log_ttl_seconds": "deduplication_window_seconds",
    "message_visibility_timeout_seconds": "visibility_timeout_seconds",
}
GONE_OPTIONS = {
    "key_separator": "leave it out: any name works, and no part of a name needs a separator",
    "dead_letter_queue": "leave it out: dead letters stay in their queue, readable with peek(state='dead') and "
    "brought back with redrive()",
    "retry_strategy": "use retry_budget_seconds, retry_initial_delay_seconds and retry_max_delay_seconds",
}
OPTIONS_ELSEWHERE = {
    **{there: f"its name is {here}" for there, here in RENAMED_OPTIONS.items()},
    **GONE_OPTIONS,
    "redis_client": "give client=, url= or gateway=",
}
"""What to do instead, for each option that a queue does not take."""
