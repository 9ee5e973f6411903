"""What is refused as a gateway, before anything is sent."""

from __future__ import annotations

import pytest

import sluicegate.asyncio
from sluicegate import GatewayContractError, RedisGateway, RedisMessageQueue


class Half:
    """A gateway whose author stopped half way."""

    server = "somewhere"
    retry_budget_seconds = 1.0
    wait = None

    def execute(self, call: object) -> None: ...


def test_a_gateway_that_lacks_members_is_refused_by_name() -> None:
    with pytest.raises(GatewayContractError, match="Half without send, close, address, decodes_responses, wait;"):
        RedisMessageQueue("orders", gateway=Half())  # type: ignore[arg-type]


def test_a_gateway_of_the_other_flavour_is_refused() -> None:
    with pytest.raises(GatewayContractError, match="without aclose"):
        sluicegate.asyncio.RedisMessageQueue("orders", gateway=RedisGateway(url="redis://nowhere"))  # type: ignore[arg-type]


def test_it_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        RedisMessageQueue("orders", gateway="redis://localhost")  # type: ignore[arg-type]
