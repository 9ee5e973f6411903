"""What leaving a lease's block means for the messages that have no verdict yet."""

from __future__ import annotations

from sluicegate._claimed_batch import ClaimedBatch
from sluicegate._lease_values import Verdict
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.message import Message

__all__ = ["exit_verdicts"]


def exit_verdicts(config: QueueConfig, batch: ClaimedBatch, error: BaseException | None) -> list[Verdict]:
    """The verdicts for the rest of a batch.

    Args:
        config: the queue's options, of which `on_error` and the backoff count.
        batch: the lease's batch.
        error: what the block raised, None when it ended normally.
    """
    if error is None:
        return [Verdict("ack")]
    if not isinstance(error, Exception):
        return [Verdict("release")]
    open_slots = set(batch.verdicts.open)
    if batch.yielded < 0:  # the handler took the batch whole, so any message may be the one that failed
        worst = max((message.delivery_count for message in batch.messages), default=1)
        on_error = config.on_error if len(batch.messages) == 1 else "retry"
        return [_failed(config, None, worst, error, on_error)]
    in_hand = batch.messages[batch.yielded]
    earlier = [message for message in batch.messages[: batch.yielded] if message.slot in open_slots]
    later = [message for message in batch.messages[batch.yielded + 1 :] if message.slot in open_slots]
    verdicts = [Verdict(batch.claim.on_batch_error, earlier), Verdict("release", later)]
    if in_hand.slot in open_slots:
        verdicts.append(_failed(config, in_hand, in_hand.delivery_count, error, config.on_error))
    return [verdict for verdict in verdicts if verdict.messages != []]


def _failed(
    config: QueueConfig, message: Message | None, deliveries: int, error: Exception, on_error: policies.OnError
) -> Verdict:
    failure = policies.after_error(on_error, config.backoff, deliveries, error)
    return Verdict(failure.verb, message, failure.delay_seconds, error, failure.reason)
