"""The options of a queue, checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from tenacity import RetryCallState

from sluicegate import checks
from sluicegate.core.deduplication import (
    DeduplicationPolicy,
    KeySource,
    compile_key_function,
    portable_key_source,
)
from sluicegate.core.payload_limits import PayloadLimits
from sluicegate.core.policies import DEFAULT_BACKOFF
from sluicegate.core.values import QueueRules
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.events import QueueEvent
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.spec import PORTABLE, QueueSpec, describe_backoff, rebuild_backoff

__all__ = [
    "GONE_OPTIONS",
    "OPTIONS_ELSEWHERE",
    "RENAMED_OPTIONS",
    "OnError",
    "OverloadPolicy",
    "QueueConfig",
    "QueueOptions",
    "QueueSpec",
    "RetryBackoff",
]

OnError = Literal["retry", "bury", "discard"]
OverloadPolicy = Literal["raise", "block", "drop_oldest"]
RetryBackoff = Callable[[RetryCallState], float]
"""One of tenacity's wait strategies, or a callable of your own of the same form."""

_MAX_DELIVERIES = 4000  # the entry keeps three hex digits
_log = logging.getLogger("sluicegate")


class QueueOptions(TypedDict, total=False):
    """Options of a queue, for checkers of types where they are passed on: `**options: Unpack[QueueOptions]`."""

    get_deduplication_key: KeySource | None
    deduplication: bool | None
    deduplication_policy: DeduplicationPolicy
    deduplication_window_seconds: float
    visibility_timeout_seconds: float | None
    heartbeat_interval_seconds: float | None
    on_heartbeat_failure: Callable[[], Any] | None
    max_delivery_count: int | None
    max_lease_seconds: float | None
    on_error: OnError
    retry_backoff: RetryBackoff | None
    max_pending_length: int | None
    pending_overload_policy: OverloadPolicy
    pending_overload_block_timeout_seconds: float
    enable_completed_queue: bool
    max_completed_length: int | None
    enable_failed_queue: bool
    max_failed_length: int | None
    max_dead_length: int | None
    strict_payload_types: bool
    max_payload_bytes: int | None
    max_payload_depth: int | None
    sort_keys: bool
    strict_envelope_decoding: bool
    require_noeviction: bool
    message_wait_interval_seconds: float
    retry_budget_seconds: float
    retry_initial_delay_seconds: float
    retry_max_delay_seconds: float
    interrupt: BaseGracefulInterruptHandler | None
    on_event: Callable[[QueueEvent], Any] | None


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Options of one queue; `docs/configuration.md` tells their meaning, rules and defaults.

    Raises:
        ConfigurationError: an option, or two together, that cannot work.
    """

    get_deduplication_key: KeySource | None = None
    deduplication: bool | None = None
    deduplication_policy: DeduplicationPolicy = "window"
    deduplication_window_seconds: float = 3600
    visibility_timeout_seconds: float | None = 300
    heartbeat_interval_seconds: float | None = None
    on_heartbeat_failure: Callable[[], Any] | None = None
    max_delivery_count: int | None = 10
    max_lease_seconds: float | None = None
    on_error: OnError = "retry"
    retry_backoff: RetryBackoff | None = None
    max_pending_length: int | None = None
    pending_overload_policy: OverloadPolicy = "raise"
    pending_overload_block_timeout_seconds: float = 1.0
    enable_completed_queue: bool = False
    max_completed_length: int | None = 1000
    enable_failed_queue: bool = False
    max_failed_length: int | None = 1000
    max_dead_length: int | None = None
    strict_payload_types: bool = False
    max_payload_bytes: int | None = None
    max_payload_depth: int | None = None
    sort_keys: bool = False
    strict_envelope_decoding: bool = False
    require_noeviction: bool = False
    message_wait_interval_seconds: float = 5
    retry_budget_seconds: float = 120
    retry_initial_delay_seconds: float = 0.01
    retry_max_delay_seconds: float = 5.0
    interrupt: BaseGracefulInterruptHandler | None = None
    on_event: Callable[[QueueEvent], Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.retry_backoff, Mapping):  # as a spec carries it
            object.__setattr__(self, "retry_backoff", rebuild_backoff(self.retry_backoff))
        self._check_deduplication()
        self._check_lease()
        self._check_heartbeat()
        self._check_failures()
        self._check_backpressure()
        self._check_history()
        self._check_payloads()
        self._check_waiting()

    @property
    def at_most_once(self) -> bool:
        """Whether messages are acked before their handler starts: no visibility timeout."""
        return self.visibility_timeout_seconds is None

    @property
    def backoff(self) -> RetryBackoff:
        """How long a message whose handler raised stays out of reach: `retry_backoff`, or the default."""
        return self.retry_backoff if self.retry_backoff is not None else DEFAULT_BACKOFF

    @property
    def rules(self) -> QueueRules:
        """The rules that the scripts need."""
        return QueueRules(
            max_delivery_count=self.max_delivery_count or 0,
            max_lease_seconds=self.max_lease_seconds or 0,
            max_dead_length=self.max_dead_length or 0,
            completed_cap=(self.max_completed_length or 0) if self.enable_completed_queue else None,
            failed_cap=(self.max_failed_length or 0) if self.enable_failed_queue else None,
            strict=self.strict_envelope_decoding,
        )

    @property
    def limits(self) -> PayloadLimits:
        """The limits for payloads."""
        return PayloadLimits(self.strict_payload_types, self.max_payload_bytes, self.max_payload_depth)

    def refuse_async(self) -> None:
        """Refuse callbacks that somebody would have to await.

        Raises:
            ConfigurationError: names the option.
        """
        for name in ("get_deduplication_key", "on_heartbeat_failure", "on_event"):
            checks.synchronous(name, getattr(self, name))

    def portable(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON can carry it.

        Callbacks and the interrupt handler belong to this process and stay behind. So does a callable key function:
        the far side consumes, and refuses to publish. A backoff that is not one of tenacity's exponential, fixed or
        incrementing ones stays behind as well: the far side uses the default, and a warning is logged here.
        """
        options = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in PORTABLE and getattr(self, field.name) != field.default
        }
        source = portable_key_source(self.get_deduplication_key)
        if source is not None:
            options["get_deduplication_key"] = source
        elif self.get_deduplication_key is not None:
            options["publishes"] = False
            options.pop("deduplication_policy", None)  # a publisher's: consumers read it from the message
        if self.retry_backoff is not None:
            described = describe_backoff(self.retry_backoff)
            if described is not None:
                options["retry_backoff"] = described
            else:
                _log.warning("retry_backoff=%s cannot travel; the default is used there", type(self.retry_backoff))
        return options

    def _check_deduplication(self) -> None:
        if self.deduplication is not None and not isinstance(self.deduplication, bool):
            raise OptionTypeError(f"deduplication must be True, False or None, not {self.deduplication!r}")
        if self.get_deduplication_key is not None:
            if self.deduplication is False:
                raise ConfigurationError("deduplication=False contradicts get_deduplication_key; leave one of them out")
            compile_key_function(self.get_deduplication_key)
        elif self.deduplication:
            raise ConfigurationError(
                "deduplication=True needs get_deduplication_key: a callable, a field, fields or a template"
            )
        checks.one_of("deduplication_policy", self.deduplication_policy, get_args(DeduplicationPolicy))
        if self.deduplication_policy != "window" and self.get_deduplication_key is None:
            raise ConfigurationError(
                f"deduplication_policy={self.deduplication_policy!r} needs get_deduplication_key: a callable, a field, "
                "fields or a template"
            )
        checks.positive("deduplication_window_seconds", self.deduplication_window_seconds)

    def _check_lease(self) -> None:
        checks.whole("max_delivery_count", self.max_delivery_count, _MAX_DELIVERIES)
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
        checks.positive("visibility_timeout_seconds", timeout)
        if longest is not None:
            checks.positive("max_lease_seconds", longest)
            if longest < timeout:
                raise ConfigurationError(
                    f"max_lease_seconds={longest:g} must not be less than visibility_timeout_seconds={timeout:g}, "
                    "the life of a lease that is never extended"
                )

    def _check_heartbeat(self) -> None:
        interval, timeout = self.heartbeat_interval_seconds, self.visibility_timeout_seconds
        checks.callback("on_heartbeat_failure", self.on_heartbeat_failure)
        if interval is not None:
            checks.not_negative("heartbeat_interval_seconds", interval)
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
        checks.one_of("on_error", self.on_error, get_args(OnError))
        if self.on_error == "bury" and self.at_most_once:
            raise ConfigurationError(
                "on_error='bury' needs a visibility timeout: with visibility_timeout_seconds=None a message is done "
                "before its handler starts"
            )
        if self.retry_backoff is None:
            return
        if not callable(self.retry_backoff) or isinstance(self.retry_backoff, type):
            raise OptionTypeError(
                "retry_backoff must be one of tenacity's wait strategies, such as tenacity.wait_exponential(max=60), "
                f"or a callable from tenacity's RetryCallState to seconds, not {self.retry_backoff!r}"
            )

    def _check_backpressure(self) -> None:
        checks.cap("max_pending_length", self.max_pending_length)
        policy = self.pending_overload_policy
        checks.one_of("pending_overload_policy", policy, get_args(OverloadPolicy))
        checks.not_negative("pending_overload_block_timeout_seconds", self.pending_overload_block_timeout_seconds)
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
            enabled, most = getattr(self, switch), getattr(self, length)
            checks.flag(switch, enabled)
            checks.cap(length, most)
            if not enabled and most != 1000:
                raise ConfigurationError(f"{length}={most!r} has no effect without {switch}=True; set it too")
        checks.cap("max_dead_length", self.max_dead_length)

    def _check_payloads(self) -> None:
        checks.flag("strict_payload_types", self.strict_payload_types)
        checks.flag("strict_envelope_decoding", self.strict_envelope_decoding)
        checks.flag("require_noeviction", self.require_noeviction)
        checks.cap("max_payload_bytes", self.max_payload_bytes)
        checks.cap("max_payload_depth", self.max_payload_depth)
        checks.flag("sort_keys", self.sort_keys)

    def _check_waiting(self) -> None:
        checks.not_negative("message_wait_interval_seconds", self.message_wait_interval_seconds)
        checks.not_negative("retry_budget_seconds", self.retry_budget_seconds)
        checks.not_negative("retry_initial_delay_seconds", self.retry_initial_delay_seconds)
        checks.not_negative("retry_max_delay_seconds", self.retry_max_delay_seconds)
        if self.interrupt is not None and not isinstance(self.interrupt, BaseGracefulInterruptHandler):
            raise OptionTypeError(
                "interrupt must be a GracefulInterruptHandler, an EventDrivenInterruptHandler or a subclass of "
                f"BaseGracefulInterruptHandler of your own, not {self.interrupt!r}"
            )
        checks.callback("on_event", self.on_event)


# What redis-message-queue calls otherwise, or has and nobody needs here: in its queues and its gateways.
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
"""Options that a queue does not take: what to do instead."""
