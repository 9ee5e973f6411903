"""Ids that the library makes are fit for what others name by them."""

from __future__ import annotations

import re

from sluicegate._session import new_id


def test_an_id_is_part_of_run_ids_file_names_and_message_ids() -> None:
    ids = [new_id() for _ in range(5_000)]
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {16}
    assert all(re.fullmatch(rb"\w{16}", one) for one in ids), (
        "no dot, of which Airflow refuses two in a row, and no dash"
    )
