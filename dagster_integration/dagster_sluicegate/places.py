"""The texts that name a queue, a stream or a group, and tell any two of them apart; nothing here needs Dagster."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from sluicegate.core.keys import encode_name
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place

__all__ = ["consumed", "in_title", "label_of", "names_of", "page_link", "place_of", "shown"]

_KINDS = ("queue:", "stream:")


def consumed(place: Place) -> Place:
    """Return a place from which messages are consumed.

    Raises:
        ConfigurationError: it is a stream, whose groups consume.
    """
    if place.stream and place.group is None:
        raise ConfigurationError(
            f"{place} is consumed by groups; name one by group, in the resource or where it is used"
        )
    return place


def label_of(place: Place) -> str:
    """Return the text that stands for a place in run keys, tags and ids.

    That of a queue is its name. No two places have the same text, whatever their names are.
    """
    if not place.stream:
        return f"queue:{encode_name(place.name)}" if place.name.startswith(_KINDS) else place.name
    names = [place.name] if place.group is None else [place.name, place.group]
    return ":".join(["stream", *map(encode_name, names)])


def names_of(place: Place) -> dict[str, str]:
    """Return whose numbers some metadata or tags hold; `sluicegate/queue` differs between any two places."""
    names = {"sluicegate/queue": label_of(place)}
    if place.stream:
        names["sluicegate/stream"] = place.name
    if place.group is not None:
        names["sluicegate/group"] = place.group
    return names


def page_link(page_url: str, place: Place) -> str:
    """Return where the web page shows a place.

    Args:
        page_url: of the page itself.
        place: a queue, a stream or a group.
    """
    if not place.stream:
        named = {"queue": place.name}
    else:
        named = {"stream": place.name} | ({} if place.group is None else {"group": place.group})
    return f"{page_url.partition('#')[0]}#{urlencode(named)}"


def place_of(opened: Any) -> Place:
    """Return the place of an open queue, stream or group."""
    group = getattr(opened, "group_name", None)
    return Place(opened.name, stream=group is not None or opened.kind == "stream", group=group)


def in_title(place: Place) -> str:
    """Return a place as a sentence begins with it."""
    text = str(place)
    return text[0].upper() + text[1:]


def shown(place: Place) -> str:
    """Return a place in a sentence about messages in it: a queue by its name alone."""
    return str(place) if place.stream else repr(place.name)
