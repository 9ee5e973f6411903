"""Parts of a publish whose keys and payloads are not joined yet."""

from __future__ import annotations

import pytest

from sluicegate.core.packing import Unjoined, packed_parts

MIDDLE = b'\x1f{"h":"1"}\x1f'
PAYLOADS = [b"%d" % number * (number * 37 % 50 + 1) for number in range(300)]
PAYLOADS[7], PAYLOADS[9], PAYLOADS[200] = b"", b"x" * 9000, b"\x1f"
NAMES = [b"k%d" % number for number in range(300)]


def unjoined(names: list[bytes]) -> Unjoined:
    ends = [sum(map(len, PAYLOADS[: at + 1])) for at in range(len(PAYLOADS))]
    return Unjoined(MIDDLE, names, bytearray(b"".join(PAYLOADS)), ends)


def joined(names: list[bytes]) -> list[bytes]:
    return [b"\x1f" + name + MIDDLE + data for name, data in zip(names or [b""] * 300, PAYLOADS, strict=True)]


@pytest.mark.parametrize("names", [[], NAMES], ids=["without keys", "with keys"])
def test_they_are_those_that_are_joined_already(names: list[bytes]) -> None:
    parts, expected = unjoined(names), joined(names)
    assert parts == expected
    assert expected == parts
    assert (len(parts), parts[9], parts[-1], parts[3:5]) == (300, expected[9], expected[-1], expected[3:5])
    assert parts.sizes() == [*map(len, expected)]
    assert parts.cut(5, 250) == expected[5:250]
    assert parts.cut(5, 250).sizes() == [*map(len, expected[5:250])]
    assert parts != expected[1:]


@pytest.mark.parametrize("names", [[], NAMES], ids=["without keys", "with keys"])
def test_they_are_packed_as_those_that_are_joined_already(names: list[bytes]) -> None:
    packed = packed_parts(b"B", unjoined(names), names)
    assert packed == packed_parts(b"B", joined(names), names)
    assert packed[0] == b"1,1,1,1,1,1,1,1,1,1,250,40".replace(b"1,1,1,1,1,1,1,1,1,1", b"9,1")
