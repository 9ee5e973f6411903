// All places of the server in one list.

import { placeHref, placeKey } from "./api.js";
import { sparkline } from "./charts.js";
import { h, List, put, setAttribute, setText } from "./dom.js";
import { count, counted, isNumber, rate, roughAge, shortAge, visible } from "./format.js";
import { readyOf } from "./known.js";
import { badge, button, emptyState, loading, select } from "./parts.js";

const SHOWN_AT_FIRST = 200;
const KINDS = [
  ["all", "All", () => true],
  ["queue", "Queues", ({ kind }) => kind === "queue"],
  ["stream", "Streams", ({ kind }) => kind === "stream" || kind === "group"],
  ["jobs", "Jobs", ({ kind }) => kind === "jobs"],
  ["attention", "Attention", needsAttention],
];
const COLUMNS = [
  { key: "name", label: "Name", value: (row) => fullName(row).toLowerCase() },
  { key: "trend", label: "Ready, last minutes" },
  { key: "ready", label: "Ready", numeric: true, value: readyOf },
  { key: "oldest", label: "Oldest ready", numeric: true, value: (row) => row.depth?.oldest_ready_age_seconds },
  { key: "in_flight", label: "In flight", numeric: true, value: (row) => row.depth?.in_flight },
  { key: "delayed", label: "Delayed", numeric: true, value: (row) => row.depth?.delayed },
  { key: "dead", label: "Dead", numeric: true, value: (row) => row.depth?.dead },
  { key: "in", label: "In /s", numeric: true, value: (row) => row.rates?.published_per_second },
  { key: "out", label: "Out /s", numeric: true, value: (row) => row.rates?.acked_per_second },
];
// What was filtered and sorted stays while somebody looks at one place and comes back.
const chosen = { filter: "", kind: "all", sort: "name", descending: false, all: false };

export function fullName({ name, group }) {
  return group === null || group === undefined ? visible(name) : `${visible(name)} › ${visible(group)}`;
}

export function isOpen({ gate, open, depth }) {
  if (open !== undefined) return Boolean(open);
  if (!gate || !depth || depth.paused) return false;
  return (isNumber(gate.min_ready) && depth.ready >= gate.min_ready)
    || (isNumber(gate.max_age_seconds) && (depth.oldest_ready_age_seconds ?? -1) >= gate.max_age_seconds);
}

function needsAttention(row) {
  return Boolean(row.error || row.depth?.dead || row.depth?.paused || row.depth?.expired || row.depth?.set_aside);
}

/** Return the marks of a row's state as `[text, tone]`, the most serious first. */
export function marksOf(row) {
  const marks = [];
  if (row.error) marks.push(["error", "bad"]);
  if (row.depth?.paused) marks.push(["paused", "warn"]);
  if (row.depth?.expired) marks.push([`${count(row.depth.expired)} expired`, "warn"]);
  if (row.depth?.set_aside) marks.push([`${count(row.depth.set_aside)} set aside`, "warn"]);
  if (isOpen(row)) marks.push(["gate open", "good"]);
  return marks;
}

export function overviewView({ onDemo }) {
  const tiles = h("dl", { class: "tiles" });
  const found = h("p", { class: "found", role: "status" });
  const body = h("tbody", { role: "rowgroup" });
  const place = h("div");
  const more = button("", () => {
    chosen.all = true;
    show();
  }, { kind: "quiet", hidden: true });
  const search = h("input", {
    type: "search", class: "filter", id: "filter", placeholder: "Filter by name", "aria-label": "Filter by name",
    autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/",
    on: { input: () => { chosen.filter = search.value; show(); } },
  });
  search.value = chosen.filter;
  const kinds = h("div", { class: "segments", role: "group", "aria-label": "Kind" }, KINDS.map(([key, label]) =>
    h("button", { type: "button", class: "segment", "data-kind": key, on: { click: () => { chosen.kind = key; show(); } } },
      label, h("span", { class: "segment-count" }))));
  const sorting = select(COLUMNS.filter(({ value }) => value).map(({ key, label }) => [key, `Sort by ${label.toLowerCase()}`]),
    chosen.sort, (key) => sortBy(key, key !== "name"), { class: "sorting", "aria-label": "Sort by" });
  const heads = COLUMNS.map((column) => {
    const { key, label, numeric, value } = column;
    const sorter = value && h("button", {
      type: "button", class: "sorter", "data-sort": key,
      on: { click: () => sortBy(key, chosen.sort === key ? !chosen.descending : key !== "name") },
    }, label);
    return h("th", { scope: "col", role: "columnheader", class: numeric ? "numeric" : `column-${key}` }, sorter || label);
  });
  const table = h("div", { class: "card overview-card" },
    h("table", { class: "overview", role: "table" },
      h("caption", { class: "visually-hidden" }, "Queues, streams, groups and job lists"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body));
  const list = new List(body, placeKey, makeRow, updateRow);
  let overview = null;

  const node = h("div", { class: "view" },
    h("div", { class: "view-head" }, h("h1", null, "Overview"),
      onDemo && h("a", { class: "button primary", href: "#demo" }, "Open the demo")),
    tiles,
    h("div", { class: "tools" }, search, kinds, sorting, found),
    place);
  put(place, loading("the places of this server"));

  function sortBy(key, descending) {
    chosen.sort = key;
    chosen.descending = descending;
    show();
  }

  function show() {
    if (!overview) return;
    const rows = overview.places;
    showTiles(tiles, rows);
    for (const segment of kinds.children) {
      const [, , matches] = KINDS.find(([key]) => key === segment.dataset.kind);
      setAttribute(segment, "aria-pressed", segment.dataset.kind === chosen.kind);
      setText(segment.lastElementChild, count(rows.filter(matches).length));
    }
    COLUMNS.forEach(({ key }, index) => {
      setAttribute(heads[index], "aria-sort", chosen.sort === key ? (chosen.descending ? "descending" : "ascending") : null);
    });
    sorting.value = chosen.sort;
    const wanted = chosen.filter.trim().toLowerCase();
    const [, , matches] = KINDS.find(([key]) => key === chosen.kind);
    const matching = rows.filter((row) => matches(row) && fullName(row).toLowerCase().includes(wanted));
    const shown = sorted(matching).slice(0, chosen.all ? undefined : SHOWN_AT_FIRST);
    setText(found, matching.length === rows.length ? "" : `${count(matching.length)} of ${counted(rows.length, "place")}`);
    more.hidden = shown.length === matching.length;
    setText(more, `Show all ${count(matching.length)}`);
    list.show(shown);
    if (shown.length) return place.firstChild === table || put(place, table, more);
    return put(place, rows.length ? emptyState("Nothing matches", "No place has this name and kind.",
      button("Show everything", () => {
        Object.assign(chosen, { filter: "", kind: "all" });
        search.value = "";
        show();
      }))
      : emptyState("Nothing here yet", "A queue, stream or job list appears with its first message."));
  }

  return {
    node,
    title: "Overview",
    focusFilter: () => search.focus(),
    onOverview(data) {
      overview = data;
      show();
    },
  };
}

function sorted(rows) {
  const { value } = COLUMNS.find(({ key }) => key === chosen.sort);
  const sign = chosen.descending ? -1 : 1;
  return rows.map((row) => [value(row) ?? null, fullName(row), row]).sort(([one, oneName], [two, twoName]) => {
    if (one === two) return oneName.localeCompare(twoName);
    if (one === null || two === null) return one === null ? 1 : -1; // places without the value come last
    return sign * (typeof one === "string" ? one.localeCompare(two) : one - two);
  }).map(([, , row]) => row);
}

function showTiles(tiles, rows) {
  const depths = rows.map(({ depth }) => depth).filter(Boolean);
  const sum = (values) => values.reduce((total, value) => total + (isNumber(value) ? value : 0), 0);
  const oldest = depths.map((depth) => depth.oldest_ready_age_seconds).filter(isNumber);
  const rates = rows.map(({ rates: each }) => each ?? {});
  const entries = [
    ["Ready", count(sum(depths.map(({ ready }) => ready))), "water"],
    ["In flight", count(sum(depths.map((depth) => depth.in_flight))), "flight"],
    ["Dead letters", count(sum(depths.map(({ dead }) => dead))), depths.some(({ dead }) => dead) ? "bad" : ""],
    ["Oldest ready", oldest.length ? roughAge(Math.max(...oldest)) : "nothing waits", ""],
    ["In per second", rate(sum(rates.map((each) => each.published_per_second))), ""],
    ["Out per second", rate(sum(rates.map((each) => each.acked_per_second))), ""],
  ];
  showEntries(tiles, entries);
}

/** Show tiles of `[label, value, tone]`. */
export function showEntries(tiles, entries) {
  while (tiles.childElementCount > entries.length) tiles.lastElementChild.remove();
  entries.forEach(([label, value, tone], index) => {
    const tile = tiles.children[index]
      ?? tiles.appendChild(h("div", { class: "tile" }, h("dt", null, ""), h("dd", null, "")));
    setAttribute(tile, "class", tone ? `tile ${tone}` : "tile");
    setText(tile.firstElementChild, label);
    setText(tile.lastElementChild, value);
  });
}

function makeRow(row) {
  const spark = sparkline();
  const marks = h("span", { class: "marks" });
  const link = h("a", { href: placeHref(row), class: "place-link" }, fullName(row));
  const cells = Object.fromEntries(COLUMNS.slice(2).map((column) => [
    column.key, h("td", { role: "cell", class: `numeric cell-${column.key}`, "data-label": column.label }),
  ]));
  const node = h("tr", { role: "row", class: "place-row" },
    h("th", { scope: "row", role: "rowheader" },
      h("span", { class: "place-name" }, link, badge(row.kind === "jobs" ? "jobs" : row.kind)), marks),
    h("td", { role: "cell", class: "cell-trend" }, spark.node),
    Object.values(cells));
  node.parts = { spark, marks, cells, shown: "" };
  return node;
}

function updateRow(node, row) {
  const { spark, marks, cells } = node.parts;
  spark.draw(row.history, row.gate?.min_ready);
  setText(cells.ready, count(readyOf(row)));
  setText(cells.oldest, shortAge(row.depth?.oldest_ready_age_seconds));
  setText(cells.in_flight, count(row.depth?.in_flight));
  setText(cells.delayed, count(row.depth?.delayed));
  setText(cells.dead, count(row.depth?.dead));
  cells.dead.classList.toggle("bad-ink", Boolean(row.depth?.dead));
  setText(cells.in, rate(row.rates?.published_per_second));
  setText(cells.out, rate(row.rates?.acked_per_second));
  for (const each of Object.values(cells)) each.classList.toggle("is-zero", each.textContent === "0" || each.textContent === "–");
  const wanted = marksOf(row);
  const key = JSON.stringify(wanted);
  if (key !== node.parts.shown) {
    node.parts.shown = key;
    put(marks, wanted.map(([text, tone]) => badge(text, tone, row.error && tone === "bad" ? { title: visible(row.error.message ?? row.error) } : {})));
  }
}
