"""Draw the chart: the gate over time, the leases that drained it, and the resulting delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle
from matplotlib.ticker import FuncFormatter

from example_dags.demo.crash import Crash
from example_dags.demo.progress import Progress
from example_dags.demo.watch import LeaseFile, Sample

__all__ = ["ChartData", "chart_data", "draw"]

INK, FAINT, PAPER = "#16324f", "#8aa0b4", "#fbfcfe"
WATER, FLIGHT, GATE, BAD = "#4aa3df", "#1c5d99", "#e8a317", "#d7263d"
DARK_GATE, GONE = "#a86f00", "#fbe3e6"
PARTITIONS = ("#2a9d8f", "#457b9d", "#8e7dbe", "#c97b63")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class ChartData:
    """Holds the data of the chart; times are seconds since the epoch.

    Attributes:
        samples: the queue over time.
        leases: the files of the leases.
        spans: begin and end of each part of the run, by label, in order.
        min_ready: the sensor's threshold.
        gate_opened: when the sensor opened the gate.
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


def chart_data(
    progress: Progress,
    samples: Sequence[Sample],
    leases: Sequence[LeaseFile],
    delays: pd.DataFrame,
    crash: Crash | None,
) -> ChartData:
    """Collect the chart's data of a run that has ended."""
    spans = {}
    for name, label in _LABELS.items():
        step = progress.steps[name]
        assert step.started is not None
        assert step.ended is not None
        spans[label] = (step.started, step.ended)
    assert progress.gate_opened is not None
    begin, end = spans["publish the year"][0], spans["average"][1]
    sample = samples[-1]
    headline = (
        f"{sample.published:,} messages published, {sample.refused:,} duplicates refused, "
        f"{len(leases)} leases drained, {sample.acked:,} messages acked"
    )
    if crash:
        headline += f"; one worker killed with {crash.lease.rows:,} messages in its lease"
    return ChartData(
        samples=[sample for sample in samples if begin <= sample.at <= end],
        leases=leases,
        spans=spans,
        min_ready=progress.min_ready,
        gate_opened=progress.gate_opened,
        delays=delays,
        crash=crash,
        headline=headline,
    )


def draw(data: ChartData, path: Path) -> None:
    """Draw the chart into a PNG file."""
    figure = Figure(figsize=(17, 9.4), facecolor=PAPER)
    FigureCanvasAgg(figure)
    figure.text(0.012, 0.962, "Sluicegate: a year of flights through the gate", color=INK, fontsize=20, weight="bold")
    figure.text(0.012, 0.931, data.headline, color=INK, fontsize=12.5)
    depth = figure.add_axes((0.088, 0.445, 0.475, 0.435))
    leases = figure.add_axes((0.088, 0.062, 0.475, 0.315))
    delays = figure.add_axes((0.648, 0.062, 0.283, 0.80))
    scale = figure.add_axes((0.943, 0.17, 0.010, 0.58))
    begin = min(start for start, _ in data.spans.values())
    _draw_depth(depth, data, begin)
    _draw_leases(leases, data, begin)
    _connect(depth, leases)
    _draw_delays(delays, scale, data.delays)
    figure.savefig(path, dpi=110)


def _draw_depth(axes: Axes, data: ChartData, begin: float) -> None:
    times = [sample.at - begin for sample in data.samples]
    ready = [sample.ready for sample in data.samples]
    held = [sample.ready + sample.in_flight for sample in data.samples]
    end = max(stop for _, stop in data.spans.values()) - begin
    top = max([*held, data.min_ready]) * 1.34
    opened = data.gate_opened - begin
    axes.fill_between(times, ready, color=WATER, alpha=0.55, linewidth=0, label="ready")
    axes.fill_between(times, ready, held, color=FLIGHT, alpha=0.9, linewidth=0, label="in flight, in leases")
    axes.plot(times, held, color=FLIGHT, linewidth=1.4)
    line = f"the sensor's threshold: {data.min_ready:,} ready"
    axes.axhline(data.min_ready, color=GATE, linewidth=1.8, linestyle=(0, (6, 3)), label=line)
    axes.axvline(opened, ymax=0.83, color=GATE, linewidth=2.2)
    axes.plot([opened], [data.min_ready], marker="o", markersize=9, color=GATE, markeredgecolor="white", zorder=5)
    _label(axes, "the gate opens", opened, top * 0.83, DARK_GATE)
    if data.crash:
        at = data.crash.at - begin
        axes.axvline(at, ymax=0.75, color=BAD, linewidth=1.6, linestyle=":")
        _label(axes, "a worker is killed", at, top * 0.75, BAD)
    axes.set_xlim(-0.01 * end, 1.01 * end)
    axes.set_ylim(0, top)
    _draw_spans(axes, data.spans, begin, end)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,.0f}k" if value else "0"))
    axes.set_ylabel("messages in the queue", color=INK)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=3, frameon=False, labelcolor=INK, fontsize=10.5)
    _tidy(axes)


def _label(axes: Axes, text: str, x: float, y: float, color: str) -> None:
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom"}
    axes.annotate(text, (x, y), (0, 3), color=color, fontsize=11.5, weight="bold", **place)


def _draw_spans(axes: Axes, spans: dict[str, tuple[float, float]], begin: float, end: float) -> None:
    """Draw a strip on top that names the parts of the run; a part that is too short for its name has none."""
    top = axes.get_ylim()[1]
    for number, (label, (start, stop)) in enumerate(spans.items()):
        left, right = start - begin, stop - begin
        shade = 0.10 + 0.09 * (number % 2)
        axes.add_patch(Rectangle((left, top * 0.94), right - left, top * 0.06, color=INK, alpha=shade, linewidth=0))
        if (right - left) / end > 0.012 * len(label):
            axes.text((left + right) / 2, top * 0.97, label, color=INK, ha="center", va="center", fontsize=9.5)


def _draw_leases(axes: Axes, data: ChartData, begin: float) -> None:
    rows = sorted({lease.partition for lease in data.leases})
    first = min(lease.started for lease in data.leases) - begin
    last = max(lease.finished for lease in data.leases) - begin
    pad = 0.03 * (last - first)
    axes.set_xlim(first - pad, last + pad)
    axes.set_ylim(max(rows) + 0.6, -0.6)
    _draw_water(axes, data, begin)
    for lease in data.leases:
        again = lease.deliveries > 1
        axes.add_patch(
            Rectangle(
                (lease.started - begin, lease.partition - 0.34), max(lease.finished - lease.started, 0.01), 0.68,
                facecolor=PARTITIONS[lease.partition % len(PARTITIONS)], edgecolor=BAD if again else PAPER,
                linewidth=2.2 if again else 0.8, zorder=4 if again else 3,
            )
        )  # fmt: skip
    if data.crash:
        _draw_killed(axes, data, data.crash, begin)
    messages = {row: sum(lease.rows for lease in data.leases if lease.partition == row) for row in rows}
    count = {row: sum(lease.partition == row for lease in data.leases) for row in rows}
    axes.set_yticks(rows, [f"partition {row}\n{messages[row]:,}\nin {count[row]} leases" for row in rows])
    axes.set_xlabel("seconds since the publish began; each block is a lease: one batch, one file, one ack", color=INK)
    _tidy(axes)


def _draw_water(axes: Axes, data: ChartData, begin: float) -> None:
    """Draw the number of ready messages behind the leases, from the bottom of the panel to its top."""
    bottom, top = axes.get_ylim()
    most = max(sample.ready for sample in data.samples) or 1
    times = [sample.at - begin for sample in data.samples]
    surface = [bottom + (top - bottom) * sample.ready / most for sample in data.samples]
    axes.fill_between(times, bottom, surface, color=WATER, alpha=0.16, linewidth=0, zorder=1)


def _draw_killed(axes: Axes, data: ChartData, crash: Crash, begin: float) -> None:
    """Draw the lease of the killed worker, and an arrow to the worker that took it over."""
    dead, row, at = crash.lease, crash.lease.partition, crash.at - begin
    axes.add_patch(
        Rectangle(
            (dead.started - begin, row - 0.34), crash.at - dead.started, 0.68,
            facecolor=GONE, edgecolor=BAD, hatch="////", linewidth=1.6, zorder=4,
        )
    )  # fmt: skip
    axes.plot([at], [row], marker="X", markersize=13, color=BAD, markeredgecolor="white", zorder=6)
    for heir in data.leases:
        if heir.lease_id != dead.lease_id or heir.started < crash.at:
            continue
        taken = heir.started - begin
        arrow = {"arrowstyle": "-|>", "color": BAD, "linewidth": 2.0}
        axes.annotate("", (taken, row), (at, row), arrowprops=arrow, zorder=5)
        text = f"killed after its file, before its ack; taken over {taken - at:.1f} s later"
        width = axes.get_xlim()[1] - axes.get_xlim()[0]
        side = "right" if taken - axes.get_xlim()[0] > 0.6 * width else "left"
        anchor = (taken if side == "right" else at, row + 0.34)
        place: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "top", "zorder": 7}
        axes.annotate(text, anchor, (0, -1), color=BAD, fontsize=10, weight="bold", **place)


def _connect(whole: Axes, part: Axes) -> None:
    """Show which part of the upper panel the lower panel enlarges."""
    left, right = part.get_xlim()
    whole.axvspan(left, right, ymax=0.94, color=INK, alpha=0.06, linewidth=0)
    for x, corner in ((left, 0.0), (right, 1.0)):
        line = ConnectionPatch(
            (x, 0), (corner, 1), coordsA=whole.transData, coordsB=part.transAxes, color=FAINT, linewidth=1.0
        )  # fmt: skip
        whole.figure.add_artist(line)


def _draw_delays(axes: Axes, scale: Axes, delays: pd.DataFrame) -> None:
    table = delays.assign(mean=delays.delay_minutes / delays.flights)
    totals = delays.groupby("carrier")[["delay_minutes", "flights"]].sum()
    order = (totals.delay_minutes / totals.flights).sort_values(ascending=False).index
    means = table.pivot(index="carrier", columns="month", values="mean").loc[order]
    # A single extreme must not make all other cells look alike.
    limit = max(5.0, float(table["mean"].abs().quantile(0.95)))
    image = axes.imshow(means.to_numpy(), cmap="RdYlBu_r", norm=TwoSlopeNorm(0, -limit, limit), aspect="auto")
    for (row, column), value in np.ndenumerate(means.to_numpy()):
        if not np.isnan(value):
            color = "white" if abs(value) > 0.72 * limit else INK
            # Adding zero turns -0 into 0.
            axes.text(column, row, f"{round(value) + 0}", ha="center", va="center", fontsize=9.5, color=color)
    axes.set_xticks(range(len(means.columns)), [MONTHS[int(str(month)) - 1] for month in means.columns])
    axes.set_yticks(
        range(len(order)), [f"{carrier}  {count:,}" for carrier, count in totals.flights.loc[order].items()]
    )
    title = "What came out: average arrival delay in minutes"
    axes.set_title(title, color=INK, fontsize=13, weight="bold", loc="right", pad=10)
    axes.set_xlabel("carriers with their flights, the latest on top; computed by Spark, equal to pandas", color=INK)
    axes.figure.colorbar(image, cax=scale, extend="both").outline.set_visible(False)
    scale.tick_params(colors=INK, length=0)
    scale.text(0.5, 1.06, "late", color=INK, fontsize=9.5, ha="center", va="bottom", transform=scale.transAxes)
    scale.text(0.5, -0.06, "early", color=INK, fontsize=9.5, ha="center", va="top", transform=scale.transAxes)
    axes.tick_params(colors=INK, length=0)
    axes.spines[:].set_visible(False)


def _tidy(axes: Axes) -> None:
    axes.set_facecolor(PAPER)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, length=3)
    axes.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.7)
    axes.set_axisbelow(True)
