"""The fixtures, in small pytest projects of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "testing"
LOADS = 'pytest_plugins = ["sluicegate.testing"]'


def test_the_project_of_the_documentation_passes(pytester: pytest.Pytester) -> None:
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, pytester.path)
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_nothing_is_loaded_unasked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(redis_url): pass")
    ran = pytester.runpytest_subprocess()
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines("*fixture 'redis_url' not found*")


def test_each_test_begins_with_an_empty_server(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADS)
    pytester.makepyfile(
        """
        import pytest
        import redis
        from sluicegate import RedisMessageQueue

        @pytest.mark.parametrize("time", [1, 2])
        def test_made_here(make_queue, time):
            queue = make_queue(get_deduplication_key="id")
            assert queue.publish({"id": 7})
            assert not queue.publish({"id": 7})
            with queue.process_message() as payload:
                assert payload == b'{"id":7}'
            with queue.process_message() as payload:
                assert payload is None

        @pytest.mark.parametrize("time", [1, 2])
        def test_made_by_the_code_under_test(redis_url, redis_server, time):
            queue = RedisMessageQueue("mine", url=redis_url)
            assert queue.depth().ready == 0
            queue.publish("a")
            assert redis_server.client().dbsize() > 0
            assert redis.Redis.from_url(redis_server.url).dbsize() > 0

        def test_given_a_client(make_queue, redis_server):
            assert make_queue(client=redis_server.client(decode_responses=True)).publish("a")

        def test_default(queue):
            assert queue.depth().ready == 0
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=6)


def test_without_a_server_program_it_says_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE_REDIS_SERVER", "no-such-program")
    pytester.makeconftest(LOADS)
    pytester.makepyfile("def test_it(queue): pass")
    ran = pytester.runpytest_subprocess()
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines("*these tests need a Redis server: *sluicegate[[]embedded[]]*")
    assert "Traceback" not in ran.stdout.str()


def test_the_server_ends_with_the_session(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADS)
    pytester.makepyfile(
        """
        from pathlib import Path

        def test_it(redis_server):
            assert redis_server.socket.exists()
            Path("socket").write_text(str(redis_server.socket))
            Path("process").write_text(str(redis_server.client().info("server")["process_id"]))
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    assert not Path((pytester.path / "socket").read_text()).exists()
    command = Path("/proc", (pytester.path / "process").read_text(), "cmdline")
    assert not command.exists() or b"redis" not in command.read_bytes()


def test_asyncio_queues(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADS)
    pytester.makepyfile(
        """
        import asyncio
        from sluicegate.testing.asyncio import assert_published, drain_inline

        def test_it(make_async_queue):
            async def main():
                queue, seen = make_async_queue("orders"), []
                await queue.publish({"id": 1})
                await assert_published(queue, payload={"id": 1}, count=1)

                async def handler(payload):
                    await asyncio.sleep(0)
                    seen.append(payload)

                counts = await drain_inline(queue, handler)
                assert (counts.handled, seen) == (1, [b'{"id":1}'])
                await queue.aclose()

            asyncio.run(main())
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
