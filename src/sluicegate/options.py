"""The options of a queue, each declared once: type, default, unit, rule, whether a spec carries it, and what it does.

`QueueConfig` checks them together. `scripts/options.py` writes from this table what has to be text: the constructors'
signature and documentation, `QueueOptions`, and the tables of `docs/configuration.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict, TypeVar, get_args

from tenacity import RetryCallState

from sluicegate import checks
from sluicegate.core.deduplication import DeduplicationPolicy, KeySource, compile_key_function
from sluicegate.errors import OptionTypeError
from sluicegate.events import QueueEvent
from sluicegate.interrupts import BaseGracefulInterruptHandler
from sluicegate.json_default import JsonDefault, check_json_default

__all__ = ["OPTIONS", "DeclaredOptions", "OnError", "Option", "OverloadPolicy", "QueueOptions", "RetryBackoff"]

OnError = Literal["retry", "bury", "discard"]
OverloadPolicy = Literal["raise", "block", "drop_oldest"]
RetryBackoff = Callable[[RetryCallState], float]
"""One of tenacity's wait strategies, or a callable of your own of the same form."""
InSpec = Literal["yes", "no", "partly"]

T = TypeVar("T")
_MAX_DELIVERIES = 4000  # the entry keeps three hex digits


@dataclass(frozen=True, slots=True)
class _Rule:
    """What values an option takes by itself.

    Attributes:
        text: the rule in words, for the documentation.
        check: raises `ConfigurationError` for a value that breaks it; takes the option's name and the value.
        unit: of the value, "" for none.
    """

    text: str
    check: Callable[[str, Any], None]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option.

    Attributes:
        name: as in the constructor.
        type: its annotation.
        default: its default.
        unit: of its value, "" for none.
        rule: the values that it takes, in words.
        in_spec: whether `queue.spec()` carries it: `yes`, `no`, or `partly` (some values only).
        section: the heading of `docs/configuration.md` that it stands under.
        summary: what it does, in one sentence without its full stop.
        check: raises `ConfigurationError` for a value that it does not take.
    """

    name: str
    type: str
    default: Any
    unit: str
    rule: str
    in_spec: InSpec
    section: str
    summary: str
    check: Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class _Declaration:
    rule: _Rule
    section: str
    summary: str
    also: str
    in_spec: InSpec


def _option(default: T, section: str, rule: _Rule, summary: str, *, also: str = "", in_spec: InSpec = "yes") -> T:
    """Declare an option of `DeclaredOptions`; `also` says how it depends on other options."""
    declaration = _Declaration(rule, section, summary, also, in_spec)
    return field(default=default, metadata={"declaration": declaration})


def _optional(rule: _Rule) -> _Rule:
    def check(name: str, value: Any) -> None:
        if value is not None:
            rule.check(name, value)

    return _Rule(rule.text, check, rule.unit)


def _one_of(words: tuple[str, ...]) -> _Rule:
    shown = [f'`"{word}"`' for word in words]
    text = f"{', '.join(shown[:-1])} or {shown[-1]}"
    return _Rule(text, lambda name, value: checks.one_of(name, value, words))


def _cap(unit: str) -> _Rule:
    return _Rule("1 or more; `None` for no bound", checks.cap, unit)


def _check_switch(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        raise OptionTypeError(f"{name} must be True, False or None, not {value!r}")


def _check_key(name: str, value: Any) -> None:
    compile_key_function(value)


def _check_backoff(name: str, value: Any) -> None:
    if not callable(value) or isinstance(value, type):
        raise OptionTypeError(
            f"{name} must be one of tenacity's wait strategies, such as tenacity.wait_exponential(max=60), or a "
            f"callable from tenacity's RetryCallState to seconds, not {value!r}"
        )


def _check_interrupt(name: str, value: Any) -> None:
    if not isinstance(value, BaseGracefulInterruptHandler):
        raise OptionTypeError(
            f"{name} must be a GracefulInterruptHandler, an EventDrivenInterruptHandler or a subclass of "
            f"BaseGracefulInterruptHandler of your own, not {value!r}"
        )


_POSITIVE_SECONDS = _Rule("above 0", checks.positive, "seconds")
_SECONDS = _Rule("0 or more", checks.not_negative, "seconds")
_SWITCH = _Rule("`True`, `False` or `None`", _check_switch)
_FLAG = _Rule("`True` or `False`", checks.flag)
_KEY = _optional(_Rule("called once per message per publish, never on a retry; its result is a text", _check_key))
_BACKOFF = _optional(_Rule("a wait strategy of tenacity, or a callable of the same form", _check_backoff))
_INTERRUPT = _optional(_Rule("a `BaseGracefulInterruptHandler`", _check_interrupt))
_DELIVERIES = _Rule(
    f"1 to {_MAX_DELIVERIES}; `None` for no cap",
    lambda name, value: checks.whole(name, value, _MAX_DELIVERIES),
    "deliveries",
)

_DEDUPLICATION = "Deduplication"
_LEASE = "Lease and heartbeat"
_FAILURE = "Failed handlers"
_BACKPRESSURE = "Backpressure"
_HISTORY = "History"
_PAYLOADS = "Payloads"
_SERVER = "The server"
_WAITING = "Waiting and retrying"
_STOPPING = "Stopping and events"


@dataclass(frozen=True, slots=True)
class DeclaredOptions:
    """Every option of a queue with its declaration; `QueueConfig` is what the library uses."""

    get_deduplication_key: KeySource | None = _option(
        None,
        _DEDUPLICATION,
        _KEY,
        "what makes two messages the same: a callable, a field name, a list of fields, or a template such as "
        "`{tenant}:{order_id}`",
        in_spec="partly",
    )
    deduplication: bool | None = _option(
        None,
        _DEDUPLICATION,
        _SWITCH,
        "redundant; kept for compatibility with redis-message-queue. Deduplication is on when `get_deduplication_key` "
        "is set",
        also="`True` needs `get_deduplication_key`, `False` excludes it",
        in_spec="no",
    )
    deduplication_policy: DeduplicationPolicy = _option(
        "window",
        _DEDUPLICATION,
        _one_of(get_args(DeduplicationPolicy)),
        "how long a key refuses further messages: for a time from the publish, or while its message is waiting or in "
        "flight",
        also='`"until_acked"` needs `get_deduplication_key`',
    )
    deduplication_window_seconds: float = _option(
        3600,
        _DEDUPLICATION,
        _POSITIVE_SECONDS,
        "how long `window` refuses a key; for `until_acked` a safety bound of seven days at least",
    )
    visibility_timeout_seconds: float | None = _option(
        300,
        _LEASE,
        _optional(_POSITIVE_SECONDS),
        "a lease's life without a heartbeat; `None` is at-most-once: messages are acked before their handler starts",
        also="`None` needs `max_delivery_count=None`",
    )
    heartbeat_interval_seconds: float | None = _option(
        None,
        _LEASE,
        _optional(_SECONDS),
        "the time between extensions of a lease whose messages are worked on; `None`: a third of the lease, 0: never",
        also="less than half of `visibility_timeout_seconds`",
    )
    on_heartbeat_failure: Callable[[], Any] | None = _option(
        None,
        _LEASE,
        _Rule("a callable without arguments", checks.callback),
        "called when a heartbeat stops because its lease cannot be extended",
        also="needs a heartbeat",
        in_spec="no",
    )
    max_delivery_count: int | None = _option(
        10,
        _LEASE,
        _DELIVERIES,
        "deliveries after which a message is buried; crashes, takeovers and errors count",
    )
    max_lease_seconds: float | None = _option(
        None,
        _LEASE,
        _optional(_Rule("above 0; `None` for no bound", checks.positive, "seconds")),
        "longest life of a lease, however often it is extended; enforced by the server",
        also="not less than `visibility_timeout_seconds`",
    )
    on_error: OnError = _option(
        "retry",
        _FAILURE,
        _one_of(get_args(OnError)),
        "what happens to a message whose handler raised: redelivered later, buried, or deleted; the exception always "
        "propagates",
        also='`"bury"` needs a visibility timeout',
    )
    retry_backoff: RetryBackoff | None = _option(
        None,
        _FAILURE,
        _BACKOFF,
        "how long such a message waits for its next delivery; `None`: exponential from 1 s to 300 s with jitter",
        in_spec="partly",
    )
    max_pending_length: int | None = _option(
        None,
        _BACKPRESSURE,
        _cap("messages"),
        "most waiting messages (pending, returned and delayed) that a publish may leave",
    )
    pending_overload_policy: OverloadPolicy = _option(
        "raise",
        _BACKPRESSURE,
        _one_of(get_args(OverloadPolicy)),
        "what a publish beyond that does: raise `QueueBackpressureError`, wait for room, or drop the oldest messages",
        also=(
            'the last two need `max_pending_length`; `"drop_oldest"` excludes deduplication and needs '
            "`max_delivery_count=None`"
        ),
    )
    pending_overload_block_timeout_seconds: float = _option(
        1.0,
        _BACKPRESSURE,
        _SECONDS,
        "how long `block` waits for room, retries included",
    )
    enable_completed_queue: bool = _option(
        False,
        _HISTORY,
        _FLAG,
        'keep a record per acked message, for `peek(state="completed")`',
    )
    max_completed_length: int | None = _option(
        1000,
        _HISTORY,
        _cap("records"),
        "completed records kept, the newest",
        also="another value than the default needs `enable_completed_queue=True`",
    )
    enable_failed_queue: bool = _option(
        False,
        _HISTORY,
        _FLAG,
        'keep a record per failed attempt, for `peek(state="failed")`',
    )
    max_failed_length: int | None = _option(
        1000,
        _HISTORY,
        _cap("records"),
        "failed records kept, the newest",
        also="another value than the default needs `enable_failed_queue=True`",
    )
    max_dead_length: int | None = _option(
        None,
        _HISTORY,
        _cap("dead letters"),
        "dead letters kept, the newest; `None` loses none, and every drop is an event",
    )
    strict_payload_types: bool = _option(
        False,
        _PAYLOADS,
        _FLAG,
        "refuse payloads that JSON would change, such as tuples, and name the path",
    )
    max_payload_bytes: int | None = _option(
        None,
        _PAYLOADS,
        _cap("bytes"),
        "largest payload as stored; a larger one is a `PayloadTooLargeError`",
    )
    max_payload_depth: int | None = _option(
        None,
        _PAYLOADS,
        _cap("levels"),
        "deepest nesting of dicts and lists; a deeper one is a `PayloadTooDeepError`",
    )
    sort_keys: bool = _option(
        False,
        _PAYLOADS,
        _FLAG,
        "store dicts in the order of their keys, so that equal payloads are the same bytes",
    )
    json_default: JsonDefault | None = _option(
        None,
        _PAYLOADS,
        _optional(_Rule('`"iso"`, or a function from a value to what JSON can carry', check_json_default)),
        'how to write values that JSON cannot carry: `"iso"` writes dates and times as ISO 8601 text and `Decimal` as '
        "text; `None` refuses them with their path",
        also="excludes `strict_payload_types`",
        in_spec="partly",
    )
    strict_envelope_decoding: bool = _option(
        False,
        _PAYLOADS,
        _FLAG,
        "raise for values that something else put into the queue and leave them there, instead of burying them as "
        "`foreign`",
    )
    require_noeviction: bool = _option(
        False,
        _SERVER,
        _FLAG,
        "publish only to a server that evicts no keys when it is full; `False`: the first publish of the object warns",
    )
    message_wait_interval_seconds: float = _option(
        5,
        _WAITING,
        _SECONDS,
        "how long `process_message` waits for a message; 0 does not wait",
    )
    retry_budget_seconds: float = _option(
        120,
        _WAITING,
        _SECONDS,
        "how long a call is retried while Redis is away, attempts included; 0 makes one attempt",
    )
    retry_initial_delay_seconds: float = _option(
        0.01,
        _WAITING,
        _SECONDS,
        "first pause between attempts; pauses double, with jitter",
    )
    retry_max_delay_seconds: float = _option(
        5.0,
        _WAITING,
        _SECONDS,
        "longest pause between attempts",
    )
    interrupt: BaseGracefulInterruptHandler | None = _option(
        None,
        _STOPPING,
        _INTERRUPT,
        "ends claims, waits and blocked publishes once it is interrupted",
        in_spec="no",
    )
    on_event: Callable[[QueueEvent], Any] | None = _option(
        None,
        _STOPPING,
        _Rule("a callable that takes the event", checks.callback),
        "called with a `QueueEvent` after every transition; what it raises is logged and changes nothing",
        in_spec="no",
    )


def _declared() -> dict[str, Option]:
    options = {}
    for declared in fields(DeclaredOptions):
        it: _Declaration = declared.metadata["declaration"]
        rule = f"{it.rule.text}; {it.also}" if it.also else it.rule.text
        options[declared.name] = Option(
            declared.name,
            str(declared.type),
            declared.default,
            it.rule.unit,
            rule,
            it.in_spec,
            it.section,
            it.summary,
            it.rule.check,
        )
    return options


OPTIONS: dict[str, Option] = _declared()
"""The options by name, in the order of the constructor."""


class QueueOptions(TypedDict, total=False):
    """The options of a queue, for type checkers, where they are passed on: `**options: Unpack[QueueOptions]`."""

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
    json_default: JsonDefault | None
    strict_envelope_decoding: bool
    require_noeviction: bool
    message_wait_interval_seconds: float
    retry_budget_seconds: float
    retry_initial_delay_seconds: float
    retry_max_delay_seconds: float
    interrupt: BaseGracefulInterruptHandler | None
    on_event: Callable[[QueueEvent], Any] | None
