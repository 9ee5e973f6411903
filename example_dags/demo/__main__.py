"""Start the demo with `python -m example_dags.demo`; see `make demo`, `make demo-crash` and `make demo-dagster`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from rich.console import Console

from example_dags.demo.orchestrators import AIRFLOW, ORCHESTRATORS
from example_dags.demo.paths import PROJECT, Paths
from example_dags.demo.report import print_failure, print_outcome
from example_dags.demo.run import StepFailedError, run


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 when every check passes."""
    parser = argparse.ArgumentParser(
        prog="python -m example_dags.demo", description="A year of flights through the gate."
    )
    parser.add_argument("--crash", action="store_true", help="kill a Spark worker in the middle of the drain")
    parser.add_argument("--orchestrator", choices=ORCHESTRATORS, default="airflow", help="what runs the pipeline")
    parser.add_argument("--home", type=Path, help="where to keep everything; default build/demo or build/demo-dagster")
    parser.add_argument("--csv", type=Path, help="another zipped CSV file with the columns of the flights")
    options = parser.parse_args(arguments)
    # A console that cannot show a character shows a replacement instead of failing.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    # `kill` ends every process that was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    orchestrator = ORCHESTRATORS[options.orchestrator]
    home = options.home or PROJECT / "build" / ("demo" if orchestrator is AIRFLOW else f"demo-{orchestrator.key}")
    paths = Paths(home.resolve())
    csv = options.csv.resolve() if options.csv else None
    try:
        outcome = run(paths, crash=options.crash, console=console, csv=csv, orchestrator=orchestrator)
    except StepFailedError as failure:
        print_failure(console, failure)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped, and everything that was started with it.")
        return 130
    print_outcome(console, outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
