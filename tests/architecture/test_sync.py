"""The transform that makes synchronous modules from asyncio ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.project import load_script

sync: Any = load_script("sync")


def made(source: str) -> str:
    text: str = sync.Transform(source).result()
    return text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def claim():\n    return await go()\n", "def claim():\n    return go()\n"),
        ("async with a as b, c:\n    pass\n", "with a as b, c:\n    pass\n"),
        ("async for x in y:\n    pass\n", "for x in y:\n    pass\n"),
        ("z = [x async for x in y]\n", "z = [x for x in y]\n"),
        ("x = (await go())[0]\n", "x = go()[0]\n"),
        ("x = -(await go()).count\n", "x = -go().count\n"),
        ("return_(await go())\n", "return_(go())\n"),
        ("x = f(1)(await go())\n", "x = f(1)(go())\n"),
        ("x = (await a(), await b())\n", "x = (a(), b())\n"),
        ("return (await go())\n", "return go()\n"),
        ("x = (\n    await go()\n)\n", "x = (\n    go()\n)\n"),
        ("x = await (go or come)()\n", "x = (go or come)()\n"),
        ("x = await  go()  # awaits\n", "x = go()  # awaits\n"),
        ("await queue.aclose()\n", "queue.close()\n"),
        ("def __aenter__(self): ...\n", "def __enter__(self): ...\n"),
        ("from contextlib import asynccontextmanager\n", "from contextlib import contextmanager\n"),
        ("def f() -> Callable[[], Awaitable[dict[str, int]]]: ...\n", "def f() -> Callable[[], dict[str, int]]: ...\n"),
        ("def f() -> AsyncIterator[Awaitable[T]]: ...\n", "def f() -> Iterator[T]: ...\n"),
        ("def f() -> AsyncGenerator[int, str]: ...\n", "def f() -> Generator[int, str, None]: ...\n"),
        ("from sluicegate.asyncio.lease import Lease\n", "from sluicegate.lease import Lease\n"),
        ("from sluicegate._redis.asyncio.pools import Pools\n", "from sluicegate._redis.pools import Pools\n"),
        ("import redis.asyncio\n", "import redis\n"),
        ("x: redis.asyncio.Redis\n", "x: redis.Redis\n"),
        ("x = 'ä', await go(), (await go())[0]\n", "x = 'ä', go(), go()[0]\n"),
    ],
)
def test_code(source: str, expected: str) -> None:
    assert made(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Use `async with queue` or `await queue.aclose()`."""\n', '"""Use `with queue` or `queue.close()`."""\n'),
        ('"""Of `sluicegate.asyncio.lease`."""\n', '"""Of `sluicegate.lease`."""\n'),
        (
            '"""They await what it returns; async callbacks too."""\n',
            '"""They await what it returns; async callbacks too."""\n',
        ),
        ("x = 1  # as `aclose` does; await nothing\n", "x = 1  # as `close` does; await nothing\n"),
        ('members = ("execute", "aclose")\n', 'members = ("execute", "close")\n'),
        ('patch("sluicegate.asyncio.heartbeat.RETRY")\n', 'patch("sluicegate.heartbeat.RETRY")\n'),
        ('error("use sluicegate.asyncio, await aclose")\n', 'error("use sluicegate.asyncio, await aclose")\n'),
        ('x = "async with"\n', 'x = "async with"\n'),
        ('x = f"{aclose} and `await x`"\n', None),
    ],
)
def test_texts_change_only_where_they_quote_code(source: str, expected: str | None) -> None:
    assert made(source).replace("{close}", "{aclose}") == (expected or source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import asyncio  # asyncio only\nx = 1\n", "x = 1\n"),
        ("@guarded  # asyncio only\n@other\nasync def f(): ...\n", "@other\ndef f(): ...\n"),
        ("@other\nasync def f():  # asyncio only\n    '''Text.'''\n    return 1\n\n\nx = 1\n", "\n\nx = 1\n"),
        ("while x:  # asyncio only\n    x = await go(\n        x\n    )\ny = 1\n", "y = 1\n"),
        ("if x:  # asyncio only\n    a()\nelse:\n    b()\ny = 1\n", "y = 1\n"),
        ("go(\n    1,\n    2,\n)  # asyncio only\ny = 1\n", "y = 1\n"),
        (
            "with Guard():  # asyncio only\n    # why\n    x = await go(\n        1\n    )\n\n    y = 2\nz = 3\n",
            "# why\nx = go(\n    1\n)\n\ny = 2\nz = 3\n",
        ),
        ("with Guard():  # asyncio only\n    x = '''a\n    b'''\n", "x = '''a\n    b'''\n"),
        (
            "try:\n    go()\nexcept asyncio.CancelledError:  # asyncio only\n    raise\nfinally:\n    end()\n",
            "try:\n    go()\nfinally:\n    end()\n",
        ),
    ],
)
def test_marked_statements(source: str, expected: str) -> None:
    assert made(source) == expected


def test_comments_and_blank_lines_stay() -> None:
    source = "# first\n\nasync def f(  # behind\n    a,  # of a\n):\n    # inside\n    await g()  # last\n"
    assert made(source) == source.replace("async ", "").replace("await ", "")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = [\n    1,  # asyncio only\n    2,\n]\n", "stands at no statement"),
        ("# asyncio only\nx = 1\n", "stands at no statement"),
        ("x = await asyncio.wait({y})\n", "no counterpart"),
        ("import asyncio\n", "no counterpart"),
        ("try:\n    go()\nexcept Cancelled:  # asyncio only\n    raise\n", "does not compile"),
    ],
)
def test_what_cannot_be_made_synchronous_is_an_error_that_names_the_module(source: str, complaint: str) -> None:
    with pytest.raises(sync.SyncError, match=rf"^here\.py: .*{complaint}"):
        sync.synchronous(source, "here.py")


def test_the_result_is_formatted_and_names_its_source() -> None:
    source = "from b import c\nimport a\nimport unused\n\nasync def f(): return (await a.b(c))\n"
    text = sync.synchronous(source, "src/there.py")
    assert text.startswith("# Made from src/there.py by `make format`; edit there.\n")
    assert text.endswith("import a\nfrom b import c\n\n\ndef f():\n    return a.b(c)\n")
