from sluicegate.testing import assert_published, drain_inline


def place(queue, order_id, lines):
    """Publish an order; this is the code under test."""
    queue.publish({"order": order_id, "lines": lines}, headers={"source": "shop"})


def ship(payload, shipped):
    """Handle an order; this is the code under test."""
    if b'"lines":[]' in payload:
        raise ValueError("an order without lines")
    shipped.append(payload)


def test_an_order_is_published_once(make_queue):
    orders = make_queue("orders", get_deduplication_key="order")
    for _ in range(2):
        place(orders, 7, ["tea"])

    assert_published(orders, payload={"order": 7, "lines": ["tea"]}, key="7", headers={"source": "shop"}, count=1)


def test_an_order_without_lines_is_buried(make_queue):
    orders = make_queue("orders", on_error="bury")
    place(orders, 7, ["tea"])
    place(orders, 8, [])

    shipped = []
    counts = drain_inline(orders, lambda payload: ship(payload, shipped), raise_errors=False)

    assert (counts.handled, counts.failed) == (1, 1)
    assert [dead.message.json()["order"] for dead in orders.peek(state="dead")] == [8]
    assert_published(orders, count=0)
