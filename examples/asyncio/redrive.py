"""Use a bounded queue, a delay and events with asyncio; bury a failing message and redrive it once it can succeed."""

import asyncio
from pathlib import Path

from sluicegate.asyncio import RedisMessageQueue

in_stock = {b"ink"}


async def ship(goods: bytes) -> None:
    if goods not in in_stock:
        raise LookupError(f"no {goods.decode()} in stock")
    print("shipped", goods.decode())


async def main() -> None:
    queue = RedisMessageQueue(
        "goods",
        url=f"embedded://{Path('build/redrive').resolve()}",
        max_pending_length=10_000,
        on_error="bury",
        on_event=lambda event: print(f"  {event.operation} {event.outcome} {event.count}"),
    )
    await queue.publish("tea")
    await queue.publish("ink", delay_seconds=0.2)
    for _ in range(2):
        try:
            await queue.process_message_callback(ship)  # waits for a message up to five seconds
        except LookupError as error:
            print("buried:", error)

    in_stock.add(b"tea")
    await queue.redrive(reason="handler_error")
    await queue.process_message_callback(ship)
    await queue.aclose()


asyncio.run(main())
