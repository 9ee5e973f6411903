"""Read the options of a queue that an operator passes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["options_of"]

_ARGUMENTS = {"name": "the queue's name as queue_name", "stream": "the argument stream", "group": "the argument group"}


def options_of(queue_options: object) -> dict[str, Any]:
    """
    Return an operator's ``queue_options`` as keyword arguments of the hook's ``open_place``.

    :param queue_options: a mapping of option names to values, or None.
    :raises ConfigurationError: it is something else, or it names the queue, stream or group.
    """
    from sluicegate.errors import ConfigurationError, OptionTypeError

    if queue_options is None:
        return {}
    if not isinstance(queue_options, Mapping) or not all(isinstance(name, str) for name in queue_options):
        raise OptionTypeError(
            'queue_options must be a dict of options, such as {"max_delivery_count": 5}, not '
            f"a {type(queue_options).__name__}"
        )
    for name, argument in _ARGUMENTS.items():
        if name in queue_options:
            raise ConfigurationError(f"queue_options holds {name!r}; give {argument}")
    return dict(queue_options)
