// Sparklines and the chart of a place over time, as SVG.

import { h, put, setAttribute, setText, svg } from "./dom.js";
import { clockTime, isNumber } from "./format.js";

const SPARK = { width: 120, height: 30, pad: 2 };

/** Make a sparkline; `draw` shows `[[time, value], …]` and, if given, the level of a gate. */
export function sparkline() {
  const area = svg("path", { class: "spark-area" });
  const line = svg("path", { class: "spark-line" });
  const gate = svg("path", { class: "spark-gate" });
  const node = svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    area, line, gate,
  );
  function draw(history, level) {
    const points = (history ?? []).filter(([, value]) => isNumber(value));
    const bottom = SPARK.height - SPARK.pad;
    if (!points.length) {
      for (const path of [area, line, gate]) setAttribute(path, "d", null);
      return;
    }
    const top = Math.max(1, isNumber(level) ? level : 0, ...points.map(([, value]) => value));
    const first = points[0][0];
    const span = Math.max(1e-9, points.at(-1)[0] - first);
    const x = (time) => (points.length === 1 ? SPARK.width : ((time - first) / span) * SPARK.width);
    const y = (value) => bottom - (value / top) * (bottom - SPARK.pad);
    const ends = points.length === 1 ? [[first - 1, points[0][1]], points[0]] : points;
    const path = ends.map(([time, value], index) => {
      const across = points.length === 1 ? index * SPARK.width : x(time);
      return `${index ? "L" : "M"}${across.toFixed(1)} ${y(value).toFixed(1)}`;
    }).join("");
    setAttribute(line, "d", path);
    setAttribute(area, "d", `${path}L${SPARK.width} ${SPARK.height}L0 ${SPARK.height}Z`);
    setAttribute(gate, "d", isNumber(level) ? `M0 ${y(level).toFixed(1)}H${SPARK.width}` : null);
  }
  return { node, draw };
}

const ROUND_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200];
const DAY = 86_400;

/** Return round values from 0 to at least `top`: whole counts, or round times. */
export function ticks(top, { inTime = false, most = 4 } = {}) {
  if (!(top > 0)) return [0, 1];
  const rough = top / most;
  let step = inTime ? ROUND_SECONDS.find((one) => one >= rough) : undefined;
  if (step === undefined) {
    const unit = inTime ? DAY : 1;
    const scale = 10 ** Math.max(0, Math.floor(Math.log10(rough / unit)));
    step = ([1, 2, 5, 10].find((one) => one * scale >= rough / unit) ?? 10) * scale * unit;
  }
  const values = [];
  for (let value = 0; value < top + step; value += step) values.push(value);
  return values;
}

/**
 * Make a chart over time.
 *
 * @param {object} options
 *   title: of the figure. series: `[{label, index, className, area}]`, where `index` is the position in a point.
 *   format: of values on the axis, and `readout` of those that are read. inTime: whether the axis has seconds.
 */
export function chart({ title, series, format, readout = format, inTime = false, height = 200 }) {
  const margin = { top: 12, right: 12, bottom: 24, left: 56 };
  const canvas = svg("svg", { class: "chart-canvas", role: "img", height });
  const values = h("span", { class: "chart-values", "aria-live": "polite" });
  const time = h("span", { class: "chart-time" });
  const legend = h("span", { class: "legend" }, series.map(({ label, className }) =>
    h("span", { class: "legend-item" }, h("i", { class: `swatch ${className}` }), label)));
  const gateLegend = h("span", { class: "legend-item", hidden: true }, h("i", { class: "swatch gate" }), "gate");
  legend.append(gateLegend);
  const plot = h("div", {
    class: "chart-plot", tabindex: "0", role: "group", "aria-label": `${title}; arrow keys read single times`,
  }, canvas);
  const node = h("figure", { class: "chart" },
    h("figcaption", { class: "chart-head" }, h("h2", null, title), legend, h("span", { class: "chart-readout" }, time, values)),
    plot);
  let points = [];
  let lines = [];
  let pinned = null; // the time that is read
  let x = () => 0;

  function draw() {
    const width = Math.max(240, plot.clientWidth || 640);
    canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    canvas.setAttribute("width", width);
    const present = series.map(({ index }) => points.map((point) => point[index]).filter(isNumber));
    const highest = Math.max(0, ...present.flat());
    const gates = lines.filter(({ value }) => isNumber(value));
    gateLegend.hidden = !gates.length;
    const wanted = Math.max(highest, ...gates.map(({ value }) => value), 4);
    const marks = ticks(wanted * 1.05, { inTime, most: height > 150 ? 4 : 3 });
    const top = marks.at(-1);
    const right = width - margin.right;
    const bottom = height - margin.bottom;
    const first = points[0]?.[0] ?? 0;
    const last = points.at(-1)?.[0] ?? 1;
    const span = Math.max(1, last - first);
    x = (at) => margin.left + ((at - first) / span) * (right - margin.left);
    const y = (value) => bottom - (value / top) * (bottom - margin.top);
    const parts = [];
    for (const mark of marks) {
      parts.push(svg("path", { class: "grid", d: `M${margin.left} ${y(mark)}H${right}` }));
      parts.push(svg("text", { class: "axis", x: margin.left - 8, y: y(mark) + 4, "text-anchor": "end" }, format(mark)));
    }
    if (points.length > 1) {
      const steps = Math.max(2, Math.min(6, Math.floor(width / 130)));
      let before = "";
      for (let step = 0; step <= steps; step += 1) {
        const at = first + (span * step) / steps;
        if (clockTime(at) === before) continue; // a short history has fewer seconds than marks
        before = clockTime(at);
        const anchor = step === 0 ? "start" : step === steps ? "end" : "middle";
        parts.push(svg("text", { class: "axis", x: x(at), y: height - 6, "text-anchor": anchor }, clockTime(at)));
      }
    }
    for (const { index, className, area } of series) {
      const line = path(points, index, x, y);
      // A line along the bottom would say nothing and hide others.
      if (!line || (!area && points.every((point) => !point[index]))) continue;
      if (area) {
        parts.push(svg("path", { class: `area ${className}`, d: areaUnder(points, index, x, y, bottom) }));
      }
      parts.push(svg("path", { class: `line ${className}`, d: line }));
    }
    for (const { value, label } of gates) {
      parts.push(svg("path", { class: "gate-line", d: `M${margin.left} ${y(value)}H${right}` }));
      const above = y(value) > margin.top + 14;
      parts.push(svg("text", {
        class: "gate-label", x: right - 4, y: y(value) + (above ? -5 : 14), "text-anchor": "end",
      }, label));
    }
    const point = nearest();
    if (point) {
      parts.push(svg("path", { class: "cursor", d: `M${x(point[0])} ${margin.top}V${bottom}` }));
      for (const { index, className } of series) {
        if (isNumber(point[index])) {
          parts.push(svg("circle", { class: `dot ${className}`, cx: x(point[0]), cy: y(point[index]), r: 3.5 }));
        }
      }
    }
    put(canvas, parts);
    read(point ?? points.at(-1), Boolean(point));
  }

  function nearest() {
    if (pinned === null || !points.length) return null;
    return points.reduce((best, one) => (Math.abs(one[0] - pinned) < Math.abs(best[0] - pinned) ? one : best));
  }

  function read(point, announced) {
    setAttribute(values, "aria-live", announced ? "polite" : "off");
    setText(time, point ? clockTime(point[0]) : "");
    const texts = point ? series.map(({ label, index }) => `${label} ${readout(point[index])}`) : ["no data yet"];
    setText(values, texts.join(" · "));
    setAttribute(canvas, "aria-label", `${title}: ${points.length ? texts.join(", ") : "no data yet"}`);
  }

  function pin(at) {
    pinned = at;
    draw();
  }

  plot.addEventListener("pointermove", (event) => {
    if (!points.length) return;
    const box = canvas.getBoundingClientRect();
    const from = x(points[0][0]);
    const to = x(points.at(-1)[0]);
    const share = (event.clientX - box.left - from) / Math.max(1, to - from);
    pin(points[0][0] + Math.min(1, Math.max(0, share)) * (points.at(-1)[0] - points[0][0]));
  });
  plot.addEventListener("pointerleave", () => pin(null));
  plot.addEventListener("blur", () => pin(null));
  plot.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") pin(null);
    if (steps === undefined || !points.length) return;
    event.preventDefault();
    const current = points.indexOf(nearest() ?? points.at(-1));
    pin(points[Math.min(points.length - 1, Math.max(0, current + steps))][0]);
  });
  new ResizeObserver(() => draw()).observe(plot);

  return {
    node,
    show(history, gateLines = []) {
      points = history ?? [];
      lines = gateLines;
      draw();
    },
  };
}

function path(points, index, x, y) {
  let out = "";
  let open = false;
  for (const point of points) {
    if (!isNumber(point[index])) {
      open = false;
      continue;
    }
    out += `${open ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[index]).toFixed(1)}`;
    open = true;
  }
  return out;
}

/** The area under each stretch without a gap. */
function areaUnder(points, index, x, y, bottom) {
  let out = "";
  let stretch = [];
  const close = () => {
    if (stretch.length > 1) {
      out += path(stretch, index, x, y) + `L${x(stretch.at(-1)[0]).toFixed(1)} ${bottom}L${x(stretch[0][0]).toFixed(1)} ${bottom}Z`;
    }
    stretch = [];
  };
  for (const point of points) {
    if (isNumber(point[index])) stretch.push(point);
    else close();
  }
  close();
  return out;
}
