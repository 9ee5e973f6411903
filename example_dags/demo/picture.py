"""The picture: the gate over time, the leases that drained it, and the delays that came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from example_dags.demo.board import Board
from example_dags.demo.crash import Crash
from example_dags.demo.watch import LeaseFile, Sample

__all__ = ["Scene", "draw", "scene"]

INK, FAINT, PAPER = "#16324f", "#8aa0b4", "#fbfcfe"
WATER, FLIGHT, GATE, BAD = "#4aa3df", "#1c5d99", "#e8a317", "#d7263d"
PARTITIONS = ("#2a9d8f", "#457b9d", "#8e7dbe", "#c97b63")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Scene:
    """What the picture shows; times are seconds since the epoch.

    Attributes:
        samples: the queue over time.
        leases: what was written, per lease.
        spans: begin and end of the parts of the run, by their label, in order.
        min_ready: the sensor's line.
        gate_opened: when the sensor let the drain begin.
        delays: columns carrier, month, delay_minutes, flights.
        crash: the worker that was killed.
        headline: one sentence.
    """

    samples: Sequence[Sample]
    leases: Sequence[LeaseFile]
    spans: dict[str, tuple[float, float]]
    min_ready: int
    gate_opened: float
    delays: pd.DataFrame
    crash: Crash | None
    headline: str


_LABELS = {
    "publish_year": "publish the year",
    "publish_month_again": "one month again",
    "gate": "gate",
    "drain": "drain with Spark",
    "average_delays": "average",
}


def scene(
    board: Board, samples: Sequence[Sample], leases: Sequence[LeaseFile], delays: pd.DataFrame, crash: Crash | None
) -> Scene:
    """What is worth showing of a run that has ended."""
    spans = {}
    for name, label in _LABELS.items():
        step = board.steps[name]
        assert step.started is not None
        assert step.ended is not None
        spans[label] = (step.started, step.ended)
    begin, end = spans["publish the year"][0], spans["average"][1]
    sample = samples[-1]
    headline = (
        f"{sample.published:,} messages published, {sample.refused:,} duplicates refused, {len(leases)} leases drained, "
        f"{sample.acked:,} messages acked"
    )
    if crash:
        headline += f"; one worker killed with {crash.lease.rows:,} messages in its hands, nothing lost, nothing twice"
    return Scene(
        samples=[sample for sample in samples if begin <= sample.at <= end],
        leases=leases,
        spans=spans,
        min_ready=board.min_ready,
        gate_opened=spans["gate"][1],
        delays=delays,
        crash=crash,
        headline=headline,
    )


def draw(scene: Scene, path: Path) -> None:
    """Draw the scene into a PNG file."""
    figure = Figure(figsize=(17, 9), facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1, wspace=0.03, hspace=0.03)  # type: ignore[union-attr]
    title = "Sluicegate: a year of flights through the gate"
    figure.suptitle(f"{title}\n", color=INK, fontsize=19, fontweight="bold", x=0.012, ha="left")
    figure.text(0.0125, 0.945, scene.headline, color=INK, fontsize=12, ha="left", va="center")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.45, 1), height_ratios=(1.9, 1))
    depth = figure.add_subplot(grid[0, 0])
    leases = figure.add_subplot(grid[1, 0], sharex=depth)
    begin = min(start for start, _ in scene.spans.values())
    end = max(stop for _, stop in scene.spans.values())
    _draw_depth(depth, scene, begin)
    _draw_leases(leases, scene, begin)
    depth.set_xlim(-0.4, end - begin + 0.4)
    _draw_delays(figure.add_subplot(grid[:, 1]), scene.delays)
    figure.savefig(path, dpi=110)


def _draw_depth(axes: Axes, scene: Scene, begin: float) -> None:
    times = [sample.at - begin for sample in scene.samples]
    ready = [sample.ready for sample in scene.samples]
    held = [sample.ready + sample.in_flight for sample in scene.samples]
    axes.fill_between(times, ready, color=WATER, alpha=0.55, linewidth=0, label="ready")
    axes.fill_between(times, ready, held, color=FLIGHT, alpha=0.9, linewidth=0, label="in flight, in leases")
    axes.plot(times, held, color=FLIGHT, linewidth=1.4)
    top = max([*held, scene.min_ready]) * 1.32
    opened = scene.gate_opened - begin
    axes.axhline(scene.min_ready, color=GATE, linewidth=1.8, linestyle=(0, (6, 3)))
    axes.text(
        0, scene.min_ready, f" the sensor's line: {scene.min_ready:,} ready ", color=GATE, va="bottom", fontsize=10.5
    )
    axes.axvline(opened, ymax=0.83, color=GATE, linewidth=2.2)
    axes.plot([opened], [scene.min_ready], marker="o", markersize=9, color=GATE, markeredgecolor="white", zorder=5)
    axes.annotate(
        "the gate opens", (opened, top * 0.83), (0, 4), textcoords="offset points",
        color=GATE, ha="center", va="bottom", fontsize=11.5, fontweight="bold",
    )  # fmt: skip
    _draw_spans(axes, scene.spans, begin, top)
    if scene.crash:
        _mark_crash(axes, scene.crash.at - begin, top)
    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:.0f}k" if value else "0"))
    axes.set_ylabel("messages in the queue", color=INK)
    axes.legend(loc="center right", frameon=False, labelcolor=INK, fontsize=10.5)
    axes.tick_params(labelbottom=False)
    _tidy(axes)


def _draw_spans(axes: Axes, spans: dict[str, tuple[float, float]], begin: float, top: float) -> None:
    """A strip on top that says what is going on."""
    for number, (label, (start, stop)) in enumerate(spans.items()):
        left, right = start - begin, stop - begin
        strip = Rectangle(
            (left, top * 0.945), right - left, top * 0.055, color=INK, alpha=0.10 + 0.09 * (number % 2), lw=0
        )
        axes.add_patch(strip)
        if right - left > 1.2:
            axes.text((left + right) / 2, top * 0.971, label, color=INK, ha="center", va="center", fontsize=9.5)


def _mark_crash(axes: Axes, at: float, top: float) -> None:
    axes.axvline(at, ymax=0.72, color=BAD, linewidth=1.6, linestyle=":")
    axes.annotate(
        "a worker is killed", (at, top * 0.72), (0, 3), textcoords="offset points",
        color=BAD, ha="center", va="bottom", fontsize=11, fontweight="bold",
    )  # fmt: skip


def _draw_leases(axes: Axes, scene: Scene, begin: float) -> None:
    rows = sorted({lease.partition for lease in scene.leases})
    for lease in scene.leases:
        again = lease.deliveries > 1
        width = max(lease.finished - lease.started, 0.02)
        axes.add_patch(
            Rectangle(
                (lease.started - begin, lease.partition - 0.36), width, 0.72,
                facecolor=PARTITIONS[lease.partition % len(PARTITIONS)],
                edgecolor=BAD if again else "white", linewidth=2.0 if again else 0.6, zorder=3 if again else 2,
            )
        )  # fmt: skip
    if scene.crash:
        _draw_killed(axes, scene, begin)
    per_row = {row: sum(lease.rows for lease in scene.leases if lease.partition == row) for row in rows}
    count = {row: sum(lease.partition == row for lease in scene.leases) for row in rows}
    axes.set_yticks(rows, [f"partition {row}\n{per_row[row]:,} in {count[row]} leases" for row in rows])
    axes.set_ylim((max(rows, default=0)) + 0.6, -0.6)
    axes.axvline(scene.gate_opened - begin, color=GATE, linewidth=2.2)
    axes.set_xlabel("seconds since the first publish   (a block is a lease: one file, one ack)", color=INK)
    _tidy(axes)


def _draw_killed(axes: Axes, scene: Scene, begin: float) -> None:
    """The lease as its dead holder had it, and the way to whoever took it over."""
    crash = scene.crash
    assert crash is not None
    dead = crash.lease
    row = dead.partition
    axes.add_patch(
        Rectangle((dead.started - begin, row - 0.36), crash.at - dead.started, 0.72, facecolor="white", edgecolor=BAD,
                  hatch="////", linewidth=1.6, zorder=4)
    )  # fmt: skip
    axes.plot([crash.at - begin], [row], marker="X", markersize=12, color=BAD, markeredgecolor="white", zorder=6)
    heirs = [lease for lease in scene.leases if lease.lease_id == dead.lease_id and lease.started > crash.at]
    for heir in heirs:
        axes.annotate(
            "", (heir.started - begin, row), (crash.at - begin, row),
            arrowprops={"arrowstyle": "-|>", "color": BAD, "linewidth": 1.8}, zorder=5,
        )  # fmt: skip
        axes.annotate(
            f"taken over after {heir.started - crash.at:.1f} s", ((heir.started + crash.at) / 2 - begin, row + 0.36),
            (0, -2), textcoords="offset points", color=BAD, ha="center", va="top", fontsize=9.5, fontweight="bold", zorder=6,
        )  # fmt: skip


def _draw_delays(axes: Axes, delays: pd.DataFrame) -> None:
    means = delays.assign(mean=delays.delay_minutes / delays.flights).pivot(
        index="carrier", columns="month", values="mean"
    )
    totals = delays.groupby("carrier")[["delay_minutes", "flights"]].sum()
    order = (totals.delay_minutes / totals.flights).sort_values(ascending=False).index
    means = means.loc[order]
    low, high = float(means.min().min()), float(means.max().max())
    # Most cells lie between; a single extreme must not make them all look alike.
    limit = max(5.0, float(means.abs().stack().quantile(0.95)))
    image = axes.imshow(means, cmap="RdYlBu_r", norm=TwoSlopeNorm(0, -limit, limit), aspect="auto")
    for row, carrier in enumerate(means.index):
        for column, month in enumerate(means.columns):
            value = means.loc[carrier, month]
            if pd.notna(value):
                strong = abs(value) > 0.75 * limit
                axes.text(
                    column, row, f"{value:.0f}", ha="center", va="center", fontsize=9, color="white" if strong else INK
                )
    axes.set_xticks(range(len(means.columns)), [MONTHS[month - 1] for month in means.columns])
    axes.set_yticks(range(len(means.index)), [f"{carrier}  {totals.flights[carrier]:,}" for carrier in means.index])
    axes.set_title("What came out: average arrival delay in minutes", color=INK, fontsize=13, fontweight="bold", pad=12)
    axes.set_ylabel("carrier and its flights, the latest on top", color=INK)
    axes.figure.colorbar(
        image, ax=axes, fraction=0.035, pad=0.02, label=f"minutes ({low:.0f} to {high:.0f})", extend="both"
    )
    axes.tick_params(colors=INK, length=0)
    axes.spines[:].set_visible(False)


def _tidy(axes: Axes) -> None:
    axes.set_facecolor(PAPER)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, length=3)
    axes.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.7)
    axes.set_axisbelow(True)
