// One place: its depth over time, its gates, and tabs for what is in it.

import { placeHref, placeQuery } from "./api.js";
import { chart } from "./charts.js";
import { h, List, put, setAttribute, setText, svg } from "./dom.js";
import { age, axisAge, compact, count, counted, isNumber, plainGate, rate, roughAge, shortAge, visible } from "./format.js";
import { jobsPanel } from "./jobs.js";
import { extended } from "./known.js";
import { consumersPanel, leasesPanel } from "./leases.js";
import { deadPanel, historyPanel, messagesPanel } from "./messages.js";
import { fullName, marksOf, showEntries } from "./overview.js";
import { badge, button, failed, loading, tabs, toast } from "./parts.js";
import { publishDialog } from "./publish.js";

const KEPT = 600;
const DEPTH = [
  { label: "ready", index: 1, className: "water", area: true },
  { label: "in flight", index: 2, className: "flight" },
  { label: "dead", index: 3, className: "bad" },
];
const AGE = [{ label: "oldest ready", index: 4, className: "water", area: true }];
const NOUNS = { queue: "queue", stream: "stream", group: "group of a stream", jobs: "job list" };

export function placeView(context, place) {
  const { api, session } = context;
  const query = placeQuery(place);
  const isStream = place.kind === "stream";
  const view = { depth: null, history: [], gates: [] };
  const marks = h("span", { class: "marks" });
  let shownMarks = "";
  const why = h("p", { class: "why" });
  const tiles = h("dl", { class: "tiles" });
  const chartOfDepth = chart({ title: "Messages", series: DEPTH, format: compact, readout: count });
  const chartOfAge = chart({
    title: "Age of the oldest ready message", series: AGE, format: axisAge, readout: shortAge, inTime: true, height: 120,
  });
  const gates = h("div", { class: "gates" });
  const gateList = new List(gates, (gate) => gate.label, makeGate, (node, gate) => updateGate(node, gate, view.depth));
  const totals = h("dl", { class: "facts" });
  const side = h("aside", { class: "side", "aria-label": "Gates and totals" }, [
    !isStream && h("section", { class: "card" }, h("h2", null, "Gates"), gates),
    h("section", { class: "card" }, h("h2", null, "Totals"), totals)]);
  const charts = h("section", { class: "card charts", "aria-label": "Depth over time" }, chartOfDepth.node, chartOfAge.node);
  const streamCard = h("section", { class: "card", "aria-label": "Groups" });
  const panels = tabs("Contents", tabsOf(context, place, query));
  const error = h("div");
  const pause = actionButton("Pause", () => (view.depth?.paused ? "resume" : "pause"), "pause");
  const reap = actionButton("Recover expired leases", () => "reap", "reap");
  reap.hidden = true;
  const acts = session.may_act && h("div", { class: "view-actions" }, !isStream && reap, !isStream && pause,
    place.kind !== "group" && button(place.kind === "jobs" ? "Enqueue…" : "Publish…", () => publishDialog(context, place), {
      kind: "primary", id: "publish",
    }));
  const content = h("div", { class: "place-grid" },
    h("div", { class: "place-main" }, isStream ? streamCard : charts, panels.node), side);
  const node = h("div", { class: "view" },
    h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, h("a", { href: "#" }, "Overview"), " / ", NOUNS[place.kind]),
    h("div", { class: "view-head" },
      h("h1", { class: "place-title" }, fullName(place)), badge(place.kind), marks, acts),
    why, error, tiles, content);
  put(error, loading("this place"));
  content.hidden = true;

  function actionButton(label, verbOf, name) {
    const done = { pause: "Claims are paused.", resume: "Claims are resumed." };
    const node = button(label, async () => {
      const verb = verbOf();
      node.disabled = true;
      try {
        const answer = await api.post(verb, query);
        toast(done[verb] ?? `${counted(answer.recovered, "message")} recovered from expired leases.`);
        await read();
        panels.chosen && refresh();
      } catch (refused) {
        toast(refused.message, "bad");
      } finally {
        node.disabled = false;
      }
    }, { "data-action": name });
    return node;
  }

  async function read() {
    try {
      onPlace(await api.get("place", query));
    } catch (refused) {
      if (!view.depth) put(error, failed(refused, read));
    }
  }

  function onPlace(data) {
    const row = data.row ?? {};
    if (row.kind === "jobs" && place.kind === "queue") return showAsJobs();
    if (data.history) view.history = data.history;
    else if (data.points) view.history = extended(view.history, data.points, KEPT);
    if (data.gates) view.gates = data.gates;
    put(error, row.error ? failed({ message: row.error.message ?? String(row.error) }) : null);
    content.hidden = false;
    view.depth = row.depth ?? null;
    const found = marksOf({ ...row, open: data.open });
    if (JSON.stringify(found) !== shownMarks) put(marks, found.map(([text, tone]) => badge(text, tone)));
    shownMarks = JSON.stringify(found);
    setText(why, data.why_not_ready ? sentence(data.why_not_ready) : "");
    why.hidden = !data.why_not_ready;
    showTiles(row);
    showFacts(totals, totalsOf(row));
    if (isStream) {
      showStream(streamCard, place, row.info ?? {});
      return;
    }
    gateList.show(view.gates.map((gate) => ({ ...gate, label: visible(gate.label ?? "gate") })));
    if (!view.gates.length) put(gates, h("p", { class: "hint" }, "No sensor's gate is configured for this place."));
    else gates.querySelector(":scope > .hint")?.remove();
    const lines = (name, format) => view.gates.filter((gate) => isNumber(gate[name]))
      .map((gate) => ({ value: gate[name], label: `${visible(gate.label ?? "gate")}: ${format(gate[name])}` }));
    chartOfDepth.show(view.history, [...lines("min_ready", count), ...lines("min_dead", (value) => `${count(value)} dead`)]);
    chartOfAge.show(view.history, lines("max_age_seconds", age));
    const depth = view.depth ?? {};
    setText(pause, depth.paused ? "Resume" : "Pause");
    reap.hidden = !depth.expired;
    panels.setCount("dead", depth.dead ? count(depth.dead) : "");
    panels.setCount("leases", depth.in_flight ? count(depth.in_flight) : "");
    panels.setCount("messages", depth.ready ? count(depth.ready) : "");
  }

  /** A link may name a job list as a queue. */
  function showAsJobs() {
    if (node.isConnected) location.replace(placeHref({ ...place, kind: "jobs" }));
  }

  function showTiles(row) {
    const depth = row.depth;
    if (!depth) {
      const info = row.info ?? {};
      showEntries(tiles, [
        ["Length", count(info.length), "water"], ["Groups", count(info.groups?.length), ""],
        ["Published", count(info.published), ""], ["Duplicates refused", count(info.duplicates), ""],
      ]);
      return;
    }
    showEntries(tiles, [
      ["Ready", count(depth.ready), "water"],
      ["In flight", count(depth.in_flight), "flight"],
      ["Delayed", count(depth.delayed), ""],
      ["Dead letters", count(depth.dead), depth.dead ? "bad" : ""],
      ["Oldest ready", roughAge(depth.oldest_ready_age_seconds, "nothing waits"), ""],
      ["In / out per second", `${rate(row.rates?.published_per_second)} / ${rate(row.rates?.acked_per_second)}`, ""],
    ]);
  }

  const refresh = () => node.querySelector(".tab-panel > *")?.dispatchEvent(new CustomEvent("refresh"));
  panels.choose(tabsOf(context, place, query)[0].key);
  read();
  return {
    node,
    title: fullName(place),
    query,
    onPlace,
    tick: () => node.querySelector(".tab-panel > *")?.dispatchEvent(new CustomEvent("tick")),
    refresh,
    chooseTab: (index) => {
      const entry = tabsOf(context, place, query)[index];
      if (entry) panels.choose(entry.key);
    },
    publish: () => node.querySelector("#publish")?.click(),
  };
}

function tabsOf(context, place, query) {
  if (place.kind === "stream") return [{ key: "history", label: "Messages", panel: () => historyPanel(context, query) }];
  const jobs = { key: "jobs", label: "Jobs", panel: () => jobsPanel(context, query) };
  const messages = { key: "messages", label: "Messages", panel: () => messagesPanel(context, place, query) };
  return [
    ...(place.kind === "jobs" ? [jobs] : []),
    messages,
    { key: "leases", label: "In flight", panel: () => leasesPanel(context, query) },
    { key: "consumers", label: "Consumers", panel: () => consumersPanel(context, query) },
    { key: "dead", label: "Dead letters", panel: () => deadPanel(context, place, query) },
  ];
}

function sentence(text) {
  return `A claim would get nothing: ${visible(text)}.`;
}

function totalsOf({ stats, info }) {
  if (!stats) {
    return info ? [["published", count(info.published)], ["trimmed", count(info.trimmed)],
      ["trimmed unfinished", count(info.trimmed_unfinished)], ["first id", visible(info.first_id ?? "–")],
      ["last id", visible(info.last_id ?? "–")]] : [];
  }
  const always = ["published", "duplicates", "claimed", "acked"];
  const named = Object.entries(stats).filter(([name, value]) =>
    isNumber(value) && (always.includes(name) || value > 0) && name !== "in_flight");
  return named.map(([name, value]) => [name.replaceAll("_", " "), count(value)]);
}

function showFacts(list, facts) {
  while (list.childElementCount > facts.length) list.lastElementChild.remove();
  facts.forEach(([name, value], index) => {
    const fact = list.children[index] ?? list.appendChild(h("div", null, h("dt", null, ""), h("dd", null, "")));
    setText(fact.firstElementChild, name);
    setText(fact.lastElementChild, value);
  });
}

function makeGate(gate) {
  const meters = h("div", { class: "meters" });
  const state = badge("closed");
  const node = h("div", { class: "gate" },
    h("p", { class: "gate-head" }, h("strong", null, gate.label), state), h("p", { class: "hint" }, plainGate(gate)), meters);
  node.parts = { state, meters };
  return node;
}

function updateGate(node, gate, depth) {
  const { state, meters } = node.parts;
  const conditions = [
    ["ready", depth?.ready, gate.min_ready, count],
    ["oldest", depth?.oldest_ready_age_seconds ?? 0, gate.max_age_seconds, shortAge],
    ["dead", depth?.dead, gate.min_dead, count],
  ].filter(([, , level]) => isNumber(level));
  const fires = conditions.some(([name, value, level]) =>
    isNumber(value) && value >= level && (name === "dead" || (!depth?.paused && depth?.ready > 0)));
  setText(state, fires ? "open" : "closed");
  setAttribute(state, "class", `badge ${fires ? "good" : "neutral"}`);
  conditions.forEach(([name, value, level, format], index) => {
    const meter = meters.children[index] ?? meters.appendChild(makeMeter());
    const reached = isNumber(value) ? value : 0;
    const share = Math.min(1, reached / level);
    setText(meter.parts.text, `${name}: ${format(reached)} of ${format(level)}`);
    setAttribute(meter.parts.fill, "width", (share * 100).toFixed(1));
    setAttribute(meter, "class", reached >= level ? "meter full" : "meter");
  });
}

function makeMeter() {
  const fill = svg("rect", { class: "meter-fill", width: 0, height: 8 });
  const text = h("span", { class: "meter-text" });
  const drawing = svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "meter-back", width: 100, height: 8 }), fill);
  const node = h("div", { class: "meter" }, drawing, text);
  node.parts = { fill, text };
  return node;
}

function showStream(card, place, info) {
  const groups = info.groups ?? [];
  const key = JSON.stringify(groups);
  if (card.dataset.shown === key) return;
  card.dataset.shown = key;
  put(card, h("h2", null, "Groups"), groups.length ? h("ul", { class: "plain-list" }, groups.map((group) => h("li", null,
    h("a", { href: placeHref({ kind: "group", name: place.name, group: group.name }) }, visible(group.name)),
    h("span", { class: "hint" }, ` ${isNumber(group.lag) ? `${counted(group.lag, "message")} not delivered yet` : "lag unknown"}`,
      group.is_temporary ? ", temporary" : ""))))
    : h("p", { class: "hint" }, "No group reads this stream yet."));
}
