"""Hold every Lua script against a real server, and its header against the call builder that feeds it.

A header names KEYS and ARGV by position, the loader declares a variable per name, and the call builder of the
transition fills them by position. Nothing but this check keeps headers and builders in step.

A sample calls the builder with a different value for each parameter. The header must name each argument as the builder
names the parameter, or the field of a dataclass among them, with `x_ms` for `x_seconds`. What a builder adds of its own
or a header names otherwise is given with the sample.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
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

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.core.ledger import VerdictGroup
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.ack_and_claim import OpenLease, ack_and_claim_call
from sluicegate.core.transitions.adopt import adopt_call
from sluicegate.core.transitions.batches import batch_call, ended_call
from sluicegate.core.transitions.cancel import cancel_call, cancel_operation
from sluicegate.core.transitions.cancel_in_stream import cancel_in_stream_call
from sluicegate.core.transitions.claim import ClaimRequest, claim_call, claim_known_call
from sluicegate.core.transitions.conclude import Conclusion, conclude_call
from sluicegate.core.transitions.depth import ExpiredPage, depth_call
from sluicegate.core.transitions.eviction import eviction_call
from sluicegate.core.transitions.examine import examine_call, probe_rights_call
from sluicegate.core.transitions.extend import extend_call
from sluicegate.core.transitions.forget import forget_call
from sluicegate.core.transitions.group_pending import expire_leases_call, foreign_pending_call
from sluicegate.core.transitions.groups import (
    OWN_KEYS,
    create_group_call,
    delete_group_call,
    keep_group_call,
    stream_info_call,
)
from sluicegate.core.transitions.in_flight import LeasePage, in_flight_call
from sluicegate.core.transitions.jobs import (
    cancel_job_call,
    keep_jobs_call,
    list_jobs_call,
    peek_jobs_call,
    update_job_call,
)
from sluicegate.core.transitions.keep_driver import keep_driver_call
from sluicegate.core.transitions.manifest import manifest_call
from sluicegate.core.transitions.pause import pause_call
from sluicegate.core.transitions.peek import peek_pending_call
from sluicegate.core.transitions.peek_in_stream import peek_in_stream_call
from sluicegate.core.transitions.promote import promote_call
from sluicegate.core.transitions.publish import Batch, publish_call
from sluicegate.core.transitions.publish_to_stream import publish_to_stream_call, wake_groups_call
from sluicegate.core.transitions.purge import purge_call
from sluicegate.core.transitions.purge_unread import purge_unread_call
from sluicegate.core.transitions.reap import reap_call
from sluicegate.core.transitions.redrive import redrive_call
from sluicegate.core.transitions.remember_returned import remember_returned_call
from sluicegate.core.transitions.repair import recount_call, repair_call, repair_leases_call
from sluicegate.core.transitions.replay import replay_call
from sluicegate.core.transitions.scan import Cursor, Page, Step, Target, scan_call
from sluicegate.core.transitions.settle import SettleRequest, ack_whole_call, settle_call
from sluicegate.core.transitions.stats import stats_call
from sluicegate.core.transitions.trim import TrimRules, trim_call
from sluicegate.embedded import find_server
from sluicegate.spark.transitions import (
    acquire_consumer_call,
    browse_group_call,
    commit_write_call,
    stage_rows_call,
)

KEYS = QueueKeys("sample")
STREAM = StreamKeys("sample")
GROUP = STREAM.of_group("G")
RULES = QueueRules(
    max_delivery_count=9,
    max_lease_seconds=11,
    max_dead_length=12,
    completed_cap=13,
    failed_cap=None,
    strict=True,
    stale_seconds=14,
)
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """A prepared call, and what its header's names stand for in it. A list fills a name that ends in `...`."""

    call: Call[Any]
    keys: Mapping[str, Any]
    args: Mapping[str, Any]


def sample(
    builder: Callable[..., Call[Any]],
    *given: Any,
    of: QueueKeys = KEYS,
    keys: Mapping[str, Any] | None = None,
    args: Mapping[str, Any] | None = None,
    **named: Any,
) -> Sample:
    """Call a builder, and name what it was given.

    Args:
        builder: makes the call.
        given: its arguments after the keys of the queue.
        of: these keys.
        keys: KEYS that are not simply a key of the queue.
        args: ARGV that no parameter bears the name of.
        named: more arguments of the builder.
    """
    bound = inspect.signature(builder).bind(of, *given, **named)
    bound.apply_defaults()
    lease = bound.arguments.get("name") or next(
        (value.name for value in bound.arguments.values() if hasattr(value, "name") and value is not of), b""
    )
    names = [name for made in type(of).__mro__ for name in getattr(made, "__slots__", ())]
    plain = {name: getattr(of, name) for name in names if not name.startswith("_") and name != "name"}
    named_keys = {"lease": of.lease(lease), "closed": of.closed(lease), "marker_counters": of.marker_counters}
    meant = {**plain, **named_keys, "buckets": list(of.markers.locate([b"k"]).buckets), **(keys or {})}
    markers = {"known_chain": b"", "plan": b""}
    meanings = {"group": of.group.encode(), **markers, **_named(bound.arguments), **(args or {})}
    return Sample(builder(of, *given, **named), meant, meanings)


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments, and the fields of those that are dataclasses, as scripts get them, by the names headers should use."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                found |= _sent(field.name, getattr(value, field.name))
        else:
            found |= _sent(name, value)
    return found


def _sent(name: str, value: Any) -> dict[str, Any]:
    if name.endswith("_seconds"):
        return {f"{name.removesuffix('_seconds')}_ms": math.ceil(value * 1000)}
    if name.endswith("_cap") and value is None:
        return {name: -1}
    return {name: value.encode() if isinstance(value, str) else value}


def _publish() -> Sample:
    batch = Batch(
        id=b"B",
        parts=[b"p0", b"p1"],
        deduplication_keys=[b"m0", b"m1"],
        window_seconds=2,
        receipt_seconds=3,
        oldest_seconds=4,
        kind=b"2",
        delay_seconds=5,
        due_ms=6,
        max_pending_length=7,
        overload="partial",
        tracked=b"G",
        job_kinds=b"K",
    )
    keys, args = (
        {"receipt": KEYS.published(b"B")},
        {"batch": b"B", "fields": b"m0\0m1\0", "distinct": 1, "numbers": b"0\0001\0", "runs": b""},
    )
    return sample(publish_call, batch, age_seconds=1, keys=keys, args=args)


def _publish_to_stream() -> Sample:
    batch = Batch(
        id=b"B",
        parts=[b"p0", b"p1"],
        deduplication_keys=[b"m0", b"m1"],
        window_seconds=2,
        receipt_seconds=3,
        oldest_seconds=4,
        kind=b"2",
        in_stream=True,
    )
    keys = {"receipt": STREAM.published(b"B"), "others": [b"w", *STREAM.markers.locate([b"k"]).buckets]}
    args = {"batch": b"B", "known": 1, "fields": b"m0\0m1\0", "values": [b"G", *batch.parts]}
    return sample(publish_to_stream_call, batch, {b"G": b"w"}, age_seconds=1, of=STREAM, keys=keys, args=args)


def _delete_group() -> Sample:
    others = [getattr(GROUP, slot) for slot in OWN_KEYS]
    keys = {"others": [*others, GROUP.lease(b"L")]}
    return sample(delete_group_call, b"M", expired=True, names=[b"L"], of=GROUP, keys=keys, args={"expired": 1})


def _claim() -> Sample:
    request = ClaimRequest(
        b"L", b"N", limit=1, lease_seconds=2, keep_seconds=3, empty_seconds=4, run=KEYS.run("R"), consumer=b"C"
    )
    args = {"max_bytes": MB // 2, "exclude_ms": [2000]}  # the rules record acks
    keys = {"run": [request.run]}
    return sample(claim_call, RULES, request, takeover=b"T", maintain=False, keys=keys, args=args)


def _claim_known() -> Sample:
    request = ClaimRequest(b"L", b"N", limit=1, lease_seconds=2, keep_seconds=3, consumer=b"C")
    return sample(claim_known_call, RULES, request, takeover=b"T")


def _ack_whole() -> Sample:
    group = VerdictGroup("ack", "1-7")
    request = SettleRequest(b"L", b"T", keep_seconds=3, recorded=True, groups=(group,), size=7)
    return sample(ack_whole_call, request, held_seconds=4)


def _ack_and_claim() -> Sample:
    request = ClaimRequest(b"L", b"N", limit=1, lease_seconds=2, keep_seconds=3, consumer=b"C")
    keys = {"last_lease": KEYS.lease(b"M"), "last_closed": KEYS.closed(b"M")}
    return sample(
        ack_and_claim_call,
        request,
        OpenLease(b"M", b"T", 5),
        claims=True,
        max_lease_seconds=6,
        held_seconds=4,
        keys=keys | {"lease": KEYS.lease(b"L"), "closed": KEYS.closed(b"L")},
        args={"name": b"L", "last_name": b"M", "last_token": b"T"},
    )


def _settle() -> Sample:
    group = VerdictGroup("nack", "1-3", delay_seconds=5, named=False, why=b"W")
    bound = ((2, b"m2"), (3, b"m3"), (4, b"not settled"))
    request = SettleRequest(b"L", b"T", keep_seconds=3, recorded=True, groups=(group,), bound=bound)
    args = {"groups": [b"nack", b"1-3", 5000, 0, b"W"], "bound": b"2-3", "fields": b"m2\0m3\0"}
    return sample(settle_call, RULES, request, held_seconds=4, args=args)


_STEP = Step(b"N", 2)
_TARGETS = [Target(b"i0", b"m0"), Target(b"i1"), Target(b"i2", b"m2")]
_STEP_KEYS = {"receipt": KEYS.published(b"N")}
_STEP_ARGS = {"step": 2, "receipt_ms": 3_600_000, "fields": b"m0\0m2\0", "named": [b"i0", 1, b"i1", 0, b"i2", 2]}


def _scan() -> Sample:
    args = {"kind": b"dead", "older_ms": 3000, "from": b"5", "after": b"M", "max_values": 7, "max_bytes": MB}
    cursor, wanted = Cursor(score=b"5", member=b"M"), [b"i0", b"i1"]
    more = {"cursor": cursor, "mark": 6, "older_seconds": 3, "whole": True, "wanted": wanted}
    return sample(scan_call, "dead", page_size=7, keys={"source": KEYS.dead}, args=args, **more)


def _cancel() -> Sample:
    page = Page(mark=1, published=2, cancelled=3, read=4, ended=False, kept=Cursor(), items=[])
    args = {**_STEP_ARGS, "kind": b"newest", "from": 10, "to": 13}
    return sample(
        cancel_call, "pending", _STEP, _TARGETS, 10, page, keys={**_STEP_KEYS, "source": KEYS.pending}, args=args
    )


def _leases(*names: bytes) -> list[bytes]:
    return [KEYS.lease(name) for name in names]


SAMPLES: dict[str, Callable[[], Sample]] = {
    "batch": lambda: sample(batch_call, "open", b"G", life_seconds=2),
    "cancel": _cancel,
    "cancel_in_stream": lambda: sample(
        cancel_in_stream_call,
        _STEP,
        _TARGETS,
        of=STREAM,
        keys={**_STEP_KEYS, "receipt": STREAM.published(b"N")},
        args=_STEP_ARGS,
    ),
    "create_group": lambda: sample(
        create_group_call,
        b"N",
        "S",
        "P",
        life_seconds=2,
        of=GROUP,
        keys={"receipt": GROUP.published(b"N")},
        args={"receipt_ms": 3_600_000},
    ),
    "delete_group": _delete_group,
    "keep_group": lambda: sample(keep_group_call, of=GROUP),
    "ack_and_claim": _ack_and_claim,
    "ack_whole": _ack_whole,
    "claim": _claim,
    "claim_known": _claim_known,
    "conclude": lambda: sample(
        conclude_call,
        RULES,
        Conclusion(b"L", b"T", 2, True, True, why=b"W"),
        3,
        2,
        1,
        [b"e0", b"e1"],
        args={"done": 1, "entry": [b"e0", b"e1"]},
    ),
    "depth": lambda: sample(
        depth_call,
        ExpiredPage(b"12", b"11", b"N", [b"L", b"M"]),
        page_size=7,
        keys={"expired": _leases(b"L", b"M")},
        totals=True,
        args={"max_leases": 7, "all_totals": 1, "name": [b"L", b"M"]},
    ),
    "ended": lambda: sample(ended_call, [b"b:G", b"j:i0"]),
    "adopt": lambda: sample(
        adopt_call, RULES, consumer=b"", step=7, of=GROUP, keys={"stream": GROUP.stream}, args={"stale_ms": 14000}
    ),
    "find_unread": lambda: Sample(
        next(cancel_operation(GROUP, b"N", ["1-1"])),  # type: ignore[arg-type]
        {"stream": GROUP.stream},
        {"group": b"G", "ids": [b"1-1"]},
    ),
    "purge_unread": lambda: sample(
        purge_unread_call,
        Step(b"N", 2),
        b"1-9",
        [(b"1-1", b"k")],
        of=GROUP,
        keys={"receipt": GROUP.published(b"N")},
        args={"fields": b"k\0", "step": 2, "receipt_ms": 3_600_000, "max_values": 5000, "named": [b"1-1"]},
    ),
    "foreign_pending": lambda: sample(foreign_pending_call, after=b"1-2", count=3, consumer=b"C", of=GROUP),
    "expire_leases": lambda: sample(
        expire_leases_call, b"C", [b"L", b"M"], keys={"lease": _leases(b"L", b"M")}, args={"names": [b"L", b"M"]}
    ),
    "eviction": lambda: sample(eviction_call),
    "examine": lambda: sample(
        examine_call, [b"L", b"M"], sample=7, recent_ms=8, max_leases=9, keys={"lease": _leases(b"L", b"M")}
    ),
    "probe_rights": lambda: Sample(
        probe_rights_call(b"S", [("GET", "@")]), {"spare": b"S"}, {"words": [b"2", b"GET", b"@"]}
    ),
    "extend": lambda: sample(extend_call, b"L", b"T", lease_seconds=2, max_lease_seconds=3),
    "acquire_consumer": lambda: sample(
        acquire_consumer_call, "C", b"N", 1, floor=2, top=3, life_seconds=4, keys={"consumer": KEYS.consumer("C")}
    ),
    "browse_group": lambda: sample(browse_group_call, "1-2", 3, "4-5", max_values=6, max_bytes=7, whole=True, of=GROUP),
    "forget": lambda: sample(forget_call, b"k", b"O", args={"fields": b"k\0"}),
    "commit_write": lambda: sample(
        commit_write_call,
        b"W",
        "open",
        {"S": "5 1", "T": "6 2"},
        life_seconds=2,
        keys={"write": KEYS.write(b"W"), "stages": [KEYS.stage(b"S"), KEYS.stage(b"T")]},
        args={"described": [b"S", b"5 1", b"T", b"6 2"]},
    ),
    "in_flight": lambda: sample(
        in_flight_call,
        LeasePage(b"11", [b"L", b"M"]),
        count=2,
        offset=3,
        max_leases=4,
        max_bytes=5,
        keys={"lease": _leases(b"L", b"M")},
        args={"after": b"M", "whole": 1, "name": [b"L", b"M"]},
    ),
    "cancel_job": lambda: sample(cancel_job_call, b"J"),
    "keep_driver": lambda: sample(
        keep_driver_call, "R", b"N", "M", life_seconds=2, keys={"drivers": KEYS.drivers("R")}
    ),
    "keep_jobs": lambda: sample(keep_jobs_call, ttl_seconds=2, max_ended=3),
    "list_jobs": lambda: sample(list_jobs_call, "failed", count=2, offset=3, scanned=4),
    "peek_jobs": lambda: sample(
        peek_jobs_call, [b"J", b"K"], whole=True, max_bytes=2, args={"whole": 1, "ids": [b"J", b"K"]}
    ),
    "update_job": lambda: sample(update_job_call, b"L", b"T", 1, b"J", progress=b"0.5", note=b"n"),
    "manifest": lambda: sample(manifest_call, b"L", 2, 3, max_bytes=4),
    "remember_returned": lambda: sample(
        remember_returned_call, KEYS.run("R"), [b"i0", b"i1"], life_seconds=2, keys={"run": KEYS.run("R")}
    ),
    "pause": lambda: sample(pause_call, True, 3, args={"wanted": 1}),
    "peek": lambda: sample(
        peek_pending_call, 7, offset=3, place=2, keys={"source": KEYS.pending}, args={"kind": b"pending"}
    ),
    "peek_in_stream": lambda: sample(peek_in_stream_call, "5-5", 7, of=STREAM),
    "promote": lambda: sample(promote_call, step=7),
    "publish": _publish,
    "publish_to_stream": _publish_to_stream,
    "purge": lambda: sample(
        purge_call,
        "delayed",
        _STEP,
        _TARGETS,
        keys={**_STEP_KEYS, "source": KEYS.delayed},
        args={**_STEP_ARGS, "kind": b"delayed"},
    ),
    "reap": lambda: sample(
        reap_call,
        RULES,
        b"L",
        step=7,
        wanted=[b"k"],
        args={"fields": b"k\0"},
    ),
    "redrive": lambda: sample(
        redrive_call,
        _STEP,
        _TARGETS,
        mark=5,
        max_pending_length=6,
        keys=_STEP_KEYS,
        args={**_STEP_ARGS, "marker_ms": 7 * 24 * 3_600_000, "refuse_early": 1},
    ),
    "replay": lambda: sample(
        replay_call,
        b"N",
        "P",
        of=GROUP,
        keys={"receipt": GROUP.published(b"N")},
        args={"receipt_ms": 3_600_000},
    ),
    "repair": lambda: sample(
        repair_call,
        "aside",
        place=b"P",
        page_size=7,
        args={"from": b"P", "max_values": 7},
    ),
    "repair_leases": lambda: sample(
        repair_leases_call,
        "check",
        place=b"P",
        page_size=7,
        text=b"T",
        names=[b"L", b"M"],
        keys={"lease": _leases(b"L", b"M")},
        args={"from": b"P", "max_values": 7},
    ),
    "recount_in_flight": lambda: sample(
        recount_call, "count", b"N", upto=b"U", names=[b"L", b"M"], keys={"lease": _leases(b"L", b"M")}
    ),
    "scan": _scan,
    "settle": _settle,
    "stage_rows": lambda: sample(
        stage_rows_call, b"S", 1, [b"p0", b"p1"], life_seconds=2, keys={"stage": KEYS.stage(b"S")}
    ),
    "stats": lambda: sample(stats_call),
    "stream_info": lambda: sample(stream_info_call, of=STREAM),
    "trim": lambda: sample(
        trim_call, TrimRules(7, 2, True), exact=True, most=8, of=STREAM, args={"unfinished": 1, "exact": 1}
    ),
    "wake_groups": lambda: Sample(wake_groups_call((b"w", b"v")), {"wakeups": [b"w", b"v"]}, {}),
}


def header_problems() -> list[str]:
    """List what headers, scripts and call builders disagree about; empty if they agree."""
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
        problems += _misread(name)
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


def _misread(name: str) -> list[str]:
    """List names of a header that its script does not read, and values that a script reads by number."""
    body, head = scripts.read_body(name), scripts.load(name).header
    problems = []
    for array, names, more in (("KEYS", head.keys, head.more_keys), ("ARGV", head.args, head.more_args)):
        wanted = [*names[:-1], f"{names[-1]}_at"] if more else names
        unread = [item for item in wanted if not re.search(rf"\b{item}\b", body)]
        unread = [
            item for item in unread if not re.search(rf"^--.* {item} .*; it is not read$", head.sections[array], re.M)
        ]
        if unread:
            problems.append(f"{name} {array}: the script never reads {', '.join(unread)}")
        if numbers := re.findall(rf"\b{array}\[\d+\]", body):
            problems.append(f"{name} {array}: the script reads {', '.join(numbers)} by number; use the header's name")
    both = set(head.keys) & set(head.args)
    if both:
        problems.append(f"{name}: KEYS and ARGV both have {', '.join(sorted(both))}")
    return problems


def load_problems(client: redis.Redis) -> list[str]:
    """List scripts that the server refuses, or whose name on the server differs; empty if there are none."""
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
    """Run a Redis of its own on a unix socket until the block ends."""
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
