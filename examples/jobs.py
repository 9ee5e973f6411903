"""Enqueue jobs, let a worker try them, and wait for their results.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/jobs.py
"""

import os
import threading

from tenacity import wait_fixed

from sluicegate import JobFailedError
from sluicegate.jobs import ClaimedJob, JobKind, RedisJobQueue

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
KINDS = {
    "email": JobKind(max_attempts=3, visibility_timeout_seconds=120, retry_backoff=wait_fixed(0.1)),
    "charge": JobKind(max_attempts=1),  # never repeated
}


def work(job: ClaimedJob) -> dict[str, str]:
    """Send an e-mail; the first attempt meets a server that is busy."""
    if job.kind == "charge":
        raise ValueError("card declined")
    if job.attempts == 1:
        raise ConnectionError("smtp timeout")
    job.update(0.5, "connected")
    return {"sent_to": job.payload["recipient"]}


def run_worker(stop: threading.Event) -> None:
    with RedisJobQueue("example-jobs", url=URL, kinds=KINDS, worker="worker-1") as jobs:
        while not stop.is_set():
            with jobs.claim_jobs(10, wait_seconds=0.5) as lease:
                for job in lease.jobs:
                    try:
                        result = work(job)
                    except (OSError, ValueError) as error:
                        job.fail(error)
                    else:
                        job.complete(result)


def main() -> None:
    stop = threading.Event()
    worker = threading.Thread(target=run_worker, args=(stop,))
    worker.start()
    with RedisJobQueue("example-jobs", url=URL, kinds=KINDS) as jobs:
        email = jobs.get(jobs.enqueue({"kind": "email", "recipient": "alice@example.com"}))
        charge = jobs.get(jobs.enqueue({"amount": 7}, kind="charge"))
        print("result:", email.result(timeout_seconds=30))
        print("attempts:", email.attempts, "by", email.worker, "with", email.last_error)
        try:
            charge.result(timeout_seconds=30)
        except JobFailedError as failed:
            print("failed:", failed.error, "after", failed.attempts)
        later = jobs.enqueue({"kind": "email", "recipient": "bob@example.com"}, delay_seconds=3600)
        print("cancelled:", jobs.cancel([later]) == [later], jobs.get(later).status)
        stats = jobs.stats()
        print("waiting:", stats.waiting, "running:", stats.running)
    stop.set()
    worker.join()


if __name__ == "__main__":
    main()
