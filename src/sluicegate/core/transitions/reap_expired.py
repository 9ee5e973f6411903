"""A reap of every lease that has expired, which answers with the ids of their messages."""

from __future__ import annotations

from sluicegate.core.call import Operation
from sluicegate.core.entry import split_entry
from sluicegate.core.keys import QueueKeys, text_of
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.in_flight import HeldMessage, HeldPage, LeasePage, in_flight_call
from sluicegate.core.transitions.reap import reap_operation

__all__ = ["reap_expired_operation"]

_PAGE_SIZE = 1000


def reap_expired_operation(keys: QueueKeys, rules: QueueRules, *, emits_events: bool = False) -> Operation[list[str]]:
    """Reap expired leases, the longest expired first, until none is left.

    Returns:
        The ids of the messages that these leases held. One whose consumer settled it in the meantime is among them.
    """
    ids: list[str] = []
    last = b""
    while True:
        first: HeldPage = yield in_flight_call(keys, max_leases=1)
        if not first.page.names:
            break
        name = first.page.names[0]
        held = yield from _messages_of(keys, first.page)
        if any(message.deadline > message.now and not message.reaping for message in held) or name == last:
            break
        yield from reap_operation(keys, rules, name, emits_events=emits_events)
        ids += [text_of(split_entry(message.entry)[0]) for message in held]
        last = name
    return list(dict.fromkeys(ids))


def _messages_of(keys: QueueKeys, page: LeasePage) -> Operation[list[HeldMessage]]:
    """Read the messages of one lease; of one that has not expired, a first page."""
    found: list[HeldMessage] = []
    while True:
        held: HeldPage = yield in_flight_call(keys, page, count=_PAGE_SIZE, offset=len(found), max_leases=1)
        found += held.messages
        if held.ended or not held.messages or held.messages[0].deadline > held.messages[0].now:
            return found
