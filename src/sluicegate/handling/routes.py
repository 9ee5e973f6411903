"""Which handler gets a message: by its type, else the default handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_origin

from sluicegate import checks
from sluicegate.config import QueueConfig
from sluicegate.errors import ConfigurationError, InvalidPayloadError, OptionTypeError
from sluicegate.handling.incoming import Incoming
from sluicegate.handling.retry import Retry
from sluicegate.handling.typed import model_reader
from sluicegate.message import Message

__all__ = ["Handler", "Route", "Routes", "UnawaitedError", "check_retry"]

Handler = Callable[..., Any]
Reader = Callable[[Incoming], Any]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONTEXT_NAMES = ("ctx", "context", "delivery")
_HOW = "write handler(payload) or handler(payload, delivery)"


class UnawaitedError(TypeError):
    """A handler or hook returned something that would only run when it is awaited or iterated, so it did no work.

    That is a mistake of the program and not a failure of the message: it ends the worker, and the message is released.
    """


@dataclass(frozen=True, slots=True)
class Route:
    """A registered handler.

    Attributes:
        function: the handler.
        read: returns the payload as the handler takes it, or raises `InvalidPayloadError`.
        takes_delivery: whether the handler takes a `Delivery` as its second argument.
        is_async: whether a call of the handler is known to return an awaitable.
        retry: what happens to messages on which it fails; None for the worker's.
    """

    function: Handler
    read: Reader
    takes_delivery: bool
    is_async: bool
    retry: Retry | None


class Routes:
    """The handlers of one worker.

    Args:
        config: the options of the queue.
        awaits: whether handlers may be async.
    """

    def __init__(self, config: QueueConfig, *, awaits: bool) -> None:
        self._config = config
        self._awaits = awaits
        self._by_type: dict[str, Route] = {}
        self._default: Route | None = None

    def __bool__(self) -> bool:
        return bool(self._by_type) or self._default is not None

    def add(self, message_type: str, handler: Handler, model: object, retry: Retry | None) -> None:
        """Register the handler of one type.

        Raises:
            ConfigurationError: the type has a handler, or the handler, model or policy cannot work.
        """
        if not isinstance(message_type, str):
            raise OptionTypeError(
                f"message_type must be a str, not a {type(message_type).__name__}, such as in "
                '@worker.handler("order_created")'
            )
        if not message_type:
            raise ConfigurationError("message_type is empty; a message without a type goes to the default handler")
        if message_type in self._by_type:
            raise ConfigurationError(f"type {message_type!r} has a handler already; a type has one handler")
        self._by_type[message_type] = self._route(handler, model, retry)

    def add_default(self, handler: Handler, model: object, retry: Retry | None) -> None:
        """Register the handler of all messages whose type has none of its own, and of those without a type.

        Raises:
            ConfigurationError: there is one, or the handler, model or policy cannot work.
        """
        if self._default is not None:
            raise ConfigurationError("there is a default handler already; a worker has one")
        self._default = self._route(handler, model, retry)

    def find(self, message_type: str | None) -> Route | None:
        """Return the handler for messages of a type; None when nothing handles them."""
        found = self._by_type.get(message_type) if message_type is not None else None
        return found or self._default

    def _route(self, handler: Handler, model: object, retry: Retry | None) -> Route:
        if not callable(handler):
            raise OptionTypeError(f"handler must be a function of a payload, not a {type(handler).__name__}")
        is_async = checks.is_async(handler)
        if is_async and not self._awaits:
            raise OptionTypeError(
                f"handler {_name(handler)} is async, and a worker of threads awaits nothing; write a plain function, "
                "or use sluicegate.asyncio.worker.Worker"
            )
        call = getattr(handler, "__call__", None)  # noqa: B004  (its method, not whether it has one)
        if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in (handler, call)):
            raise ConfigurationError(f"handler {_name(handler)} is a generator, of which a call does no work; {_HOW}")
        check_retry(retry, self._config)
        signature = _signature(handler)
        return Route(
            handler,
            _reader(handler, signature, model),
            signature is not None and _takes_delivery(handler, signature),
            is_async,
            retry,
        )


def check_retry(retry: Retry | None, config: QueueConfig) -> None:
    """Refuse a policy that the queue would not carry out.

    Raises:
        ConfigurationError: it is no `Retry`, or allows more attempts than the queue allows deliveries.
    """
    if retry is None:
        return
    if not isinstance(retry, Retry):
        raise OptionTypeError(
            f"retry must be a Retry or None, not a {type(retry).__name__}; write Retry(max_attempts=3)"
        )
    most = config.max_delivery_count
    if most is not None and retry.max_attempts is not None and retry.max_attempts > most:
        raise ConfigurationError(
            f"max_attempts={retry.max_attempts} has no effect, because the queue buries a message after "
            f"max_delivery_count={most} deliveries; raise that, or lower max_attempts"
        )


def _reader(handler: Handler, signature: inspect.Signature | None, model: object) -> Reader:
    """Return how the handler takes its payload: by the model, else by the annotation of its first parameter."""
    if model is not None:
        read = model_reader(model)
        if read is None:
            shown = model.__name__ if isinstance(model, type) else type(model).__name__
            raise OptionTypeError(
                f"model must be a pydantic.BaseModel (of pydantic 2) or a msgspec.Struct, a class, not {shown}"
            )
        return _of_model(read)
    annotation = _first_annotation(signature)
    read = model_reader(annotation)
    if read is not None:
        return _of_model(read)
    if annotation is bytes:
        return _bytes
    if annotation is str:
        return _text
    if annotation is Message:
        return _message
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _object
    return Incoming.json


def _of_model(read: Callable[[bytes], Any]) -> Reader:
    return lambda incoming: read(incoming.message.payload)


def _bytes(incoming: Incoming) -> bytes:
    return incoming.message.payload


def _text(incoming: Incoming) -> str:
    try:
        return incoming.message.text()
    except UnicodeDecodeError:
        raise InvalidPayloadError("the payload is no UTF-8 text", paths=("$",)) from None


def _message(incoming: Incoming) -> Message:
    return incoming.message


def _object(incoming: Incoming) -> dict[str, Any]:
    payload = incoming.json()
    if isinstance(payload, dict):
        return payload
    raise InvalidPayloadError("the payload is JSON, but no object", paths=("$",))


def _signature(handler: Handler) -> inspect.Signature | None:
    """Return the signature, with its annotations evaluated if possible; None for a builtin that has none."""
    try:
        return inspect.signature(handler, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return inspect.signature(handler)
    except ValueError:
        return None


def _first_annotation(signature: inspect.Signature | None) -> object:
    parameters = list(signature.parameters.values()) if signature is not None else []
    return parameters[0].annotation if parameters else inspect.Parameter.empty


def _takes_delivery(handler: Handler, signature: inspect.Signature) -> bool:
    """Return whether a handler takes the delivery, as a drain's handler takes its context."""
    parameters = list(signature.parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    required = [parameter for parameter in positional if parameter.default is inspect.Parameter.empty]
    variadic = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    keywords = [
        parameter.name
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty
    ]
    if keywords:
        raise ConfigurationError(f"handler {_name(handler)} requires the keyword {keywords[0]!r}; {_HOW}")
    if len(required) > 2:
        raise ConfigurationError(f"handler {_name(handler)} requires {len(required)} arguments; {_HOW}")
    if not positional and not variadic:
        raise ConfigurationError(f"handler {_name(handler)} takes no payload; {_HOW}")
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name in _CONTEXT_NAMES)


def _name(handler: Handler) -> str:
    return repr(getattr(handler, "__qualname__", type(handler).__name__))
