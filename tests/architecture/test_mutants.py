"""The seeded faults of `make mutants` fit the source as it stands."""

from __future__ import annotations

from tests.mutants.catalog import problems, read_all


def test_every_fault_can_be_applied() -> None:
    assert problems(read_all()) == []
