"""Hold every Lua script against a real server, and its header against the call builder that feeds it.

A header names KEYS and ARGV by position, scripts read them by number, `sluicegate.core.calls` fills them by position:
nothing but this check keeps the three in step.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from sluicegate.core import admin_calls, batch_calls, calls, concluding, eviction, looking, replies, scripts
from sluicegate.core.admin_calls import Cursor, Named, Page, Step
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.repair_calls import repair_part
from sluicegate.core.values import Batch, ClaimRequest, QueueRules, SettleRequest, VerdictGroup
from sluicegate.embedded import find_server

KEYS = QueueKeys("sample")
RULES = QueueRules(
    max_delivery_count=9, max_lease_seconds=11, max_dead_length=12, completed_cap=13, failed_cap=None, strict=True
)
_PLAIN_KEYS = {
    name: getattr(KEYS, name)
    for name in (
        "pending",
        "returned",
        "delayed",
        "leases",
        "dead",
        "dead_records",
        "counters",
        "wakeup",
        "completed",
        "failed",
        "set_aside",
    )
}
_LEASE_KEYS = {**_PLAIN_KEYS, "lease": KEYS.lease(b"L"), "closed": KEYS.closed(b"L")}


@dataclass(frozen=True, slots=True)
class Sample:
    """A prepared call, and what its header's names stand for in it. A list fills a name that ends in `...`."""

    call: Call[Any]
    keys: Mapping[str, Any]
    args: Mapping[str, Any]


def _publish() -> Sample:
    batch = Batch(
        id=b"B",
        parts=[b"p0", b"p1"],
        markers=[b"m0", b"m1"],
        window_seconds=2,
        receipt_seconds=3,
        oldest_seconds=4,
        kind=b"2",
        delay_seconds=5,
        due_ms=6,
        max_pending_length=7,
        overload="partial",
    )
    return Sample(
        calls.publish(KEYS, batch, age_seconds=1),
        {**_PLAIN_KEYS, "receipt": KEYS.published(b"B"), "markers": batch.markers},
        {
            "batch": b"B",
            "age_ms": 1000,
            "window_ms": 2000,
            "receipt_ms": 3000,
            "oldest_ms": 4000,
            "kind": b"2",
            "delay_ms": 5000,
            "due_ms": 6,
            "most": 7,
            "overload": b"partial",
            "parts": batch.parts,
        },
    )


def _claim() -> Sample:
    request = ClaimRequest(b"L", b"N", limit=1, lease_seconds=2, keep_seconds=3, empty_seconds=4, run=KEYS.run("R"))
    call = calls.claim(KEYS, RULES, request, takeover=b"T", maintain=False)
    return Sample(
        call,
        {**_LEASE_KEYS, "run": [KEYS.run("R")]},
        {
            "name": b"L",
            "nonce": b"N",
            "limit": 1,
            "span_ms": 2000,
            "keep_ms": 3000,
            "empty_ms": 4000,
            "most": 9,
            "takeover": b"T",
            "tidy": 0,
            "max_bytes": 32 * 1024 * 1024,
            "max_lease_ms": 11_000,
            "max_dead_length": 12,
            "strict": 1,
            "exclude_ms": [2000],
        },
    )


def _settle() -> Sample:
    group = VerdictGroup("nack", "1-3", delay_seconds=5, named=False, why=b"W")
    bound = ((2, b"m2"), (3, b"m3"), (4, b"not settled"))
    request = SettleRequest(b"L", b"T", keep_seconds=3, recorded=True, groups=(group,), bound=bound)
    return Sample(
        calls.settle(KEYS, RULES, request, held_seconds=4),
        {**_LEASE_KEYS, "markers": [b"m2", b"m3"]},
        {
            "name": b"L",
            "token": b"T",
            "keep_ms": 3000,
            "recorded": 1,
            "held_ms": 4000,
            "most": 9,
            "max_dead_length": 12,
            "completed_cap": 13,
            "failed_cap": -1,
            "bound": b"2-3",
            "verb": b"nack",
            "slots": b"1-3",
            "delay_ms": 5000,
            "named": 0,
            "why": [b"W"],
        },
    )


def _conclude() -> Sample:
    ended = concluding.Conclusion(b"L", b"T", 2, True, True, why=b"W")
    call = concluding.conclusion_call(KEYS, RULES, ended, 3, 2, 1, [b"e0", b"e1"])
    args = {
        "token": b"T", "keep_ms": 2000, "recorded": 1, "part": 3, "last": 2, "completed_cap": 13, "failed_cap": -1,
        "why": b"W", "done": 1, "entry": [b"e0", b"e1"],
    }  # fmt: skip
    return Sample(call, _LEASE_KEYS, args)


def _extend() -> Sample:
    call = calls.extend(KEYS, b"L", b"T", lease_seconds=2, max_lease_seconds=3)
    return Sample(call, _LEASE_KEYS, {"name": b"L", "token": b"T", "span_ms": 2000, "max_lease_ms": 3000})


def _reap() -> Sample:
    args = {"name": b"L", "step": 7, "most": 9, "max_dead_length": 12, "wanted": [b"k"]}
    call = calls.reap(KEYS, RULES, b"L", step=7, wanted=[b"k"])
    return Sample(call, {**_LEASE_KEYS, "marker": [KEYS.dedup(b"k")]}, args)


def _promote() -> Sample:
    return Sample(calls.promote(KEYS, step=7), _PLAIN_KEYS, {"step": 7})


def _depth() -> Sample:
    expired = [b"L", b"M"]
    names = {**_PLAIN_KEYS, "expired": [KEYS.lease(name) for name in expired]}
    page = replies.ExpiredPage(b"12", b"11", b"N", expired)
    return Sample(
        calls.depth(KEYS, page, most=7),
        names,
        {"most": 7, "mark": b"12", "score": b"11", "after": b"N", "name": expired},
    )


def _peek() -> Sample:
    names = {**_PLAIN_KEYS, "source": KEYS.returned}
    return Sample(calls.peek(KEYS, "returned", 7, offset=3), names, {"kind": b"zset", "count": 7, "offset": 3})


_STEP = Step(b"N", 2)
_NAMED = [Named(b"i0", b"m0"), Named(b"i1"), Named(b"i2", b"m2")]
_ADMIN_KEYS = {**_PLAIN_KEYS, "receipt": KEYS.published(b"N"), "markers": [b"m0", b"m2"]}
_ADMIN_ARGS = {"step": 2, "receipt_ms": 3_600_000, "named": [b"i0", 1, b"i1", 0, b"i2", 2]}


def _scan() -> Sample:
    cursor = Cursor(score=b"5", member=b"M")
    call = admin_calls.scan(
        KEYS, "dead", most=7, cursor=cursor, mark=6, older_seconds=3, whole=True, wanted=[b"i0", b"i1"]
    )
    meaning = {"kind": b"dead", "mark": 6, "older_ms": 3000, "from": b"5", "after": b"M", "most": 7, "whole": 1}
    bounds = {"max_bytes": 4 * 1024 * 1024, "wanted": [b"i0", b"i1"]}
    return Sample(call, {**_PLAIN_KEYS, "source": KEYS.dead}, {**meaning, **bounds})


def _purge() -> Sample:
    call = admin_calls.purge(KEYS, "delayed", _STEP, _NAMED)
    return Sample(call, {**_ADMIN_KEYS, "source": KEYS.delayed}, {**_ADMIN_ARGS, "kind": b"zset"})


def _cancel() -> Sample:
    page = Page(mark=1, published=2, cancelled=3, read=4, ended=False, kept=Cursor(), items=[])
    call = admin_calls.cancel(KEYS, "pending", _STEP, _NAMED, 10, page)
    places = {"kind": b"newest", "from": 10, "to": 13, "cancelled": 3}
    return Sample(call, {**_ADMIN_KEYS, "source": KEYS.pending}, {**_ADMIN_ARGS, **places})


def _redrive() -> Sample:
    call = admin_calls.redrive(KEYS, _STEP, _NAMED, mark=5, max_pending_length=6)
    return Sample(
        call,
        _ADMIN_KEYS,
        {**_ADMIN_ARGS, "mark": 5, "max_pending_length": 6, "bound_ms": 7 * 24 * 3_600_000, "patient": 1},
    )


def _repair() -> Sample:
    call = repair_part(KEYS, "count", b"N", place=b"P", most=7, text=b"T", names=[b"L", b"M"])
    names = {**_PLAIN_KEYS, "lease": [KEYS.lease(b"L"), KEYS.lease(b"M")]}
    args = {"part": b"count", "nonce": b"N", "from": b"P", "most": 7, "text": b"T", "names": [b"L", b"M"]}
    return Sample(call, names, args)


def _forget() -> Sample:
    names = {**_PLAIN_KEYS, "marker": KEYS.dedup(b"k")}
    return Sample(admin_calls.forget(KEYS, b"k", b"O"), names, {"owner": b"O"})


def _pause() -> Sample:
    return Sample(admin_calls.pause(KEYS, True, 3), _PLAIN_KEYS, {"wanted": 1, "changes": 3})


def _acquire_consumer() -> Sample:
    call = batch_calls.acquire_consumer(KEYS, "C", b"N", 1, floor=2, top=3, life_seconds=4)
    args = {"nonce": b"N", "epoch": 1, "floor": 2, "top": 3, "life_ms": 4000}
    return Sample(call, {**_PLAIN_KEYS, "consumer": KEYS.consumer("C")}, args)


def _manifest() -> Sample:
    call = batch_calls.manifest(KEYS, b"L", 2, 3, max_bytes=4)
    return Sample(call, _LEASE_KEYS, {"name": b"L", "first": 2, "last": 3, "max_bytes": 4})


def _in_flight() -> Sample:
    names = [b"L", b"M"]
    page = looking.LeasePage(b"11", names)
    call = looking.held_page(KEYS, page, count=2, offset=3, max_leases=4, max_bytes=5)
    args = {"most": 4, "score": b"11", "after": b"M", "count": 2, "offset": 3, "max_bytes": 5, "name": names}
    return Sample(call, {**_PLAIN_KEYS, "lease": [KEYS.lease(name) for name in names]}, args)


def _remember_returned() -> Sample:
    call = batch_calls.remember_returned(KEYS, KEYS.run("R"), [b"i0", b"i1"], life_seconds=2)
    return Sample(call, {**_PLAIN_KEYS, "run": KEYS.run("R")}, {"life_ms": 2000, "members": [b"i0", b"i1"]})


def _stage_rows() -> Sample:
    call = batch_calls.stage_rows(KEYS, b"S", 1, [b"p0", b"p1"], life_seconds=2)
    return Sample(call, {"stage": KEYS.stage(b"S")}, {"expected": 1, "life_ms": 2000, "parts": [b"p0", b"p1"]})


def _commit_write() -> Sample:
    call = batch_calls.commit_write(KEYS, b"W", "open", {"S": "5 1", "T": "6 2"}, life_seconds=2)
    names = {**_PLAIN_KEYS, "write": KEYS.write(b"W"), "stages": [KEYS.stage(b"S"), KEYS.stage(b"T")]}
    return Sample(call, names, {"verb": b"open", "life_ms": 2000, "told": [b"S", b"5 1", b"T", b"6 2"]})


def _stats() -> Sample:
    return Sample(admin_calls.stats(KEYS), _PLAIN_KEYS, {})


def _eviction() -> Sample:
    return Sample(eviction.eviction(KEYS), _PLAIN_KEYS, {})


SAMPLES: dict[str, Callable[[], Sample]] = {
    "stats": _stats,
    "scan": _scan,
    "redrive": _redrive,
    "repair": _repair,
    "purge": _purge,
    "pause": _pause,
    "forget": _forget,
    "cancel": _cancel,
    "claim": _claim,
    "conclude": _conclude,
    "depth": _depth,
    "eviction": _eviction,
    "extend": _extend,
    "acquire_consumer": _acquire_consumer,
    "in_flight": _in_flight,
    "commit_write": _commit_write,
    "manifest": _manifest,
    "remember_returned": _remember_returned,
    "peek": _peek,
    "promote": _promote,
    "publish": _publish,
    "reap": _reap,
    "settle": _settle,
    "stage_rows": _stage_rows,
}


def header_problems() -> list[str]:
    """What headers, scripts and call builders disagree about; empty when they agree."""
    problems = [f"{name}: no sample call in scripts/check_lua.py" for name in scripts.NAMES if name not in SAMPLES]
    on_disk = {path.stem for path in (Path(scripts.__file__).parent.parent / "lua").glob("*.lua")}
    problems += [f"{name}.lua is not in scripts.NAMES" for name in sorted(on_disk - set(scripts.NAMES))]
    for name, make in SAMPLES.items():
        sample, script = make(), scripts.load(name)
        head = script.header
        if sample.call.script.name != name:
            problems.append(f"{name}: calls.{name} runs {sample.call.script.name}.lua")
        problems += _misplaced(f"{name} KEYS", head.keys, head.more_keys, sample.keys, sample.call.keys)
        problems += _misplaced(f"{name} ARGV", head.args, head.more_args, sample.args, sample.call.args)
        problems += _misread(f"{name} KEYS", script.text, "KEYS", len(head.keys), head.more_keys)
        problems += _misread(f"{name} ARGV", script.text, "ARGV", len(head.args), head.more_args)
    return problems


def _misplaced(
    where: str, names: Sequence[str], more: bool, meaning: Mapping[str, Any], actual: Sequence[bytes | int]
) -> list[str]:
    unknown = [name for name in names if name not in meaning]
    if unknown:
        return [f"{where}: the call builder has nothing called {', '.join(unknown)}"]
    expected: list[Any] = []
    for name in names:
        value = meaning[name]
        expected += value if isinstance(value, list) else [value]
    if more != (bool(names) and isinstance(meaning[names[-1]], list)):
        return [f"{where}: the last name must end in ... exactly when the builder may send several"]
    return [] if expected == list(actual) else [f"{where}: header means {expected}, the builder sends {list(actual)}"]


def _misread(where: str, text: bytes, array: str, named: int, more: bool) -> list[str]:
    """Numbers that the script reads and the header lacks, or the other way round."""
    read = {int(number) for number in re.findall(rf"\b{array}\[(\d+)\]", text.decode())}
    problems = []
    if not more and read and max(read) > named:
        problems.append(f"{where}: the script reads number {max(read)}, the header ends at {named}")
    # What may repeat is read by computed numbers; before it, each has its own.
    unread = set(range(1, (max(read, default=0) if more else named) + 1)) - read
    if unread:
        problems.append(f"{where}: the script never reads number {', '.join(map(str, sorted(unread)))}")
    return problems


def load_problems(client: redis.Redis) -> list[str]:
    """Scripts that the server refuses, or names otherwise than the library does; empty when there are none."""
    problems = []
    for name, script in scripts.load_all().items():
        try:
            sha = client.script_load(script.text)
        except redis.ResponseError as error:
            problems.append(f"{name}.lua: {error}")
            continue
        if sha not in (script.sha, script.sha.decode()):
            problems.append(f"{name}.lua: the server calls it {sha!r}, the library {script.sha!r}")
    return problems


@contextmanager
def server() -> Iterator[redis.Redis]:
    """A Redis of its own on a unix socket, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="lua") as folder:
        socket = f"{folder}/s"
        options = ["--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([str(find_server()), *options], stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=socket)
        try:
            _wait_for(client, process)
            yield client
        finally:
            client.close()
            process.terminate()
            process.wait(10)


def _wait_for(client: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def main() -> int:
    """Print every problem; 0 when there is none."""
    problems = header_problems()
    with server() as client:
        problems += load_problems(client)
    for problem in problems:
        print(problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
