"""Enqueue jobs, let a worker try them, and wait for all results at once.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/asyncio/jobs.py
"""

import asyncio
import os

from sluicegate.asyncio.jobs import JobKind, RedisJobQueue

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
KINDS = {"thumbnail": JobKind(max_attempts=2, visibility_timeout_seconds=30)}


async def run_worker(jobs: RedisJobQueue) -> None:
    while True:
        async with await jobs.claim_jobs(100, wait_seconds=10) as lease:
            await lease.complete_many({job: {"width": job.payload["width"] // 2} for job in lease.jobs})


async def main() -> None:
    async with RedisJobQueue("example-jobs", url=URL, kinds=KINDS) as jobs:
        worker = asyncio.create_task(run_worker(jobs))
        report = await jobs.enqueue_many([{"kind": "thumbnail", "width": width} for width in (640, 800, 1024)])
        done = await jobs.wait(report.ids, timeout_seconds=30)
        print("results:", [job.stored_result["width"] for job in done.values()])
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
