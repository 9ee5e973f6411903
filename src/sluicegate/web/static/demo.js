// The demo: enqueue jobs, set up the workers, and watch jobs fail, hang and return.

import { placeHref } from "./api.js";
import { h, List, put, setAttribute, setText } from "./dom.js";
import { count, counted, isNumber, shortAge, visible } from "./format.js";
import { button, toast } from "./parts.js";

const EVERY_MS = 600;
const BATCHES = [1, 10, 100, 1000];
const KNOBS = [
  ["workers", "Workers", { min: 0, max: 16, step: 1 }, (value) => counted(value, "worker")],
  ["latency_ms", "Work takes", { min: 50, max: 5000, step: 50 }, (value) => `${count(value)} ms`],
  ["fail_percent", "Fails", { min: 0, max: 100, step: 5 }, (value) => `${value} % of attempts`],
  ["hang_percent", "Hangs", { min: 0, max: 100, step: 5 }, (value) => `${value} % of attempts`],
];
const LANES = [
  ["pending", "Pending", "water"], ["processing", "Processing", "flight"], ["completed", "Completed", "good"], ["failed", "Failed", "bad"],
];
const MARKS = { email: "✉", webhook: "↗", thumbnail: "▣", invoice: "§" };

export function demoView(context) {
  const { api } = context;
  let state = null;
  let batch = 10;
  let busy = false;
  let timer = null;
  const error = h("div");
  const lanes = Object.fromEntries(LANES.map(([key, label, tone]) => [key, makeLane(key, label, tone, context)]));
  const knobs = Object.fromEntries(KNOBS.map(([name, label, range, words]) => [name, makeKnob(name, label, range, words, (knob, value) => change(knob, value))]));
  const kinds = h("div", { class: "demo-kinds" });
  const batches = h("div", { class: "segments", role: "group", "aria-label": "Jobs per click" }, BATCHES.map((size) =>
    h("button", { type: "button", class: "segment", "data-size": size, on: { click: () => chooseBatch(size) } }, count(size))));
  const reclaim = button("Run reclaim sweep", sweep, { kind: "primary", "data-action": "reclaim" });
  const swept = h("p", { class: "hint", role: "status" });
  const redrive = button("Redrive all", async () => {
    try {
      const { redriven } = await api.post("redrive", { jobs: state.name }, {});
      toast(`${counted(redriven ?? 0, "job")} enqueued again.`);
    } catch (refused) {
      toast(refused.message, "bad");
    }
    read();
  }, { "data-action": "redrive", hidden: true });
  lanes.failed.node.querySelector(".lane-list").before(redrive);
  const crew = h("div", { class: "crew", "aria-label": "Workers" });
  const details = h("a", { href: "#" }, "Open the job list");
  const node = h("div", { class: "view" },
    h("div", { class: "view-head" }, h("h1", null, "Demo"), h("p", { class: "lead" },
      "Real jobs on a Redis of its own. Let some hang, and watch them return to the queue."), details),
    error,
    h("div", { class: "demo" },
      h("div", { class: "demo-controls" },
        h("section", { class: "card" }, h("h2", null, "Enqueue"), batches, kinds),
        h("section", { class: "card" }, h("h2", null, "Workers"), Object.values(knobs).map((knob) => knob.node), crew),
        h("section", { class: "card" }, h("h2", null, "Reclaim"),
          h("p", { class: "hint" }, "A worker that hangs keeps its job until the lease expires. Workers that are free take ",
            "such jobs back by themselves. The sweep does it when none is: set the workers to 0 and try."),
          reclaim, swept)),
      h("div", { class: "lanes" }, Object.values(lanes).map((lane) => lane.node))));

  function chooseBatch(size) {
    batch = size;
    for (const segment of batches.children) setAttribute(segment, "aria-pressed", Number(segment.dataset.size) === size);
  }

  async function call(path, body, done) {
    try {
      const answer = await api.post(`demo/${path}`, {}, body);
      done?.(answer);
    } catch (refused) {
      toast(refused.message, "bad");
    }
    read();
  }

  const change = (name, value) => call("settings", { [name]: value });

  function sweep() {
    return call("reclaim", {}, ({ ids }) => setText(swept, ids.length
      ? `${counted(ids.length, "job")} returned to the queue: ${ids.slice(0, 5).map((id) => visible(id).slice(-6)).join(", ")}${ids.length > 5 ? " and others" : ""}.`
      : "No lease has expired: nothing to take back."));
  }

  async function read() {
    if (busy) return;
    busy = true;
    try {
      state = await api.get("demo/state");
      put(error);
      show();
    } catch (refused) {
      put(error, h("p", { class: "notice bad" }, visible(refused.message)));
    } finally {
      busy = false;
    }
  }

  function show() {
    setAttribute(details, "href", placeHref({ kind: "jobs", name: state.name }));
    if (!kinds.childElementCount) {
      put(kinds, state.kinds.map((kind) => h("button", {
        type: "button", class: "button kind", "data-kind": kind, on: { click: () => call("enqueue", { kind, count: batch }) },
      }, h("span", { "aria-hidden": "true" }, MARKS[kind] ?? "•"), kind)));
    }
    for (const [name] of KNOBS) knobs[name].show(state.settings[name]);
    for (const [key] of LANES) lanes[key].show(state.counts[key], state.jobs[key]);
    redrive.hidden = !state.counts.failed;
    put(crew, state.workers.map(({ doing }) => h("i", { class: `crew-member ${doing}`, title: doing })),
      h("span", { class: "hint" }, crewText(state.workers)));
  }

  chooseBatch(batch);
  read();
  timer = setInterval(() => !document.hidden && read(), EVERY_MS);
  return { node, title: "Demo", leave: () => clearInterval(timer), refresh: () => { read(); return true; } };
}

function crewText(workers) {
  const busy = workers.filter(({ doing }) => doing === "working").length;
  return workers.length ? `${count(busy)} of ${count(workers.length)} busy` : "no workers";
}

function makeKnob(name, label, range, words, change) {
  const output = h("output", { class: "knob-value" });
  let touched = 0;
  const input = h("input", {
    type: "range", id: `knob-${name}`, ...range,
    on: {
      input: () => { touched = Date.now(); say(); },
      change: () => { touched = Date.now(); change(name, Number(input.value)); },
    },
  });
  const say = () => {
    setText(output, words(Number(input.value)));
    setAttribute(input, "aria-valuetext", words(Number(input.value)));
  };
  return {
    node: h("div", { class: "knob" }, h("label", { for: input.id }, label), output, input),
    show(value) {
      if (Date.now() - touched < 1500) return;
      input.value = value;
      say();
    },
  };
}

function makeLane(key, label, tone, context) {
  const number = h("span", { class: "lane-count" });
  const list = h("ul", { class: "lane-list" });
  const rest = h("p", { class: "hint lane-rest" });
  const items = new List(list, ({ id }) => id, (job) => makeCard(job), (node, job) => updateCard(node, key, job, context.now()));
  return {
    node: h("section", { class: `lane ${tone}`, "data-lane": key, "aria-label": label },
      h("header", { class: "lane-head" }, h("h2", null, label), number), list, rest),
    show(total, jobs) {
      setText(number, count(total));
      items.show(jobs);
      setText(rest, total > jobs.length ? `and ${count(total - jobs.length)} more` : total ? "" : "none");
    },
  };
}

function makeCard(job) {
  const bar = h("progress", { max: 1, "aria-label": `Progress of ${job.id}` });
  const state = h("span", { class: "job-state" });
  const node = h("li", { class: "job" },
    h("span", { class: "job-head" }, h("span", { class: "job-mark", "aria-hidden": "true" }, MARKS[job.kind] ?? "•"),
      visible(job.kind), h("code", null, visible(job.id).slice(-6))), bar, state);
  node.parts = { bar, state };
  return node;
}

function updateCard(node, lane, job, now) {
  const { bar, state } = node.parts;
  const left = isNumber(job.deadline) ? job.deadline - now : null;
  bar.hidden = lane !== "processing" || !isNumber(job.progress);
  if (!bar.hidden) bar.value = job.progress;
  const attempt = job.attempts > 1 ? `, attempt ${job.attempts}` : "";
  const texts = {
    pending: job.reclaimed ? "returned to the queue" : job.attempts ? `failed ${counted(job.attempts, "time")}, tried again` : "",
    processing: job.hung
      ? (left > 0 ? `hangs; its lease ends in ${shortAge(Math.ceil(left))}` : "lease expired, waits for a sweep") : `${job.note ?? "working"}${attempt}`,
    completed: job.attempts > 1 ? `after ${counted(job.attempts, "attempt")}` : "",
    failed: job.last_error ?? "",
  };
  setText(state, visible(texts[lane] ?? ""));
  state.hidden = !texts[lane];
  setAttribute(node, "class", `job${job.hung && lane === "processing" ? " is-hung" : ""}${job.reclaimed && ["pending", "processing"].includes(lane) ? " is-back" : ""}`);
}
