// Messages of a place by state, the viewer of one message, and what can be done with dead letters.

import { address } from "./api.js";
import { h, put, setText } from "./dom.js";
import { bytes, count, counted, dateTime, epoch, indentJson, shortRoughAge, visible, visibleLines } from "./format.js";
import { badge, button, cell, confirm, emptyState, failed, field, loading, openDialog, select, table, toast } from "./parts.js";

const PAGE = 50;
const PREVIEW = 140;
const STATES = [
  ["pending", "Pending"], ["returned", "Returned"], ["delayed", "Delayed"], ["in_flight", "In flight"],
  ["completed", "Completed"], ["failed", "Failed attempts"], ["set_aside", "Set aside"],
];
const GROUP_STATES = ["pending", "returned", "delayed", "in_flight"];
const PURGED = ["pending", "returned", "delayed", "completed", "failed"];
const CANCELLED = ["pending", "returned", "delayed"];
const ID = { label: "Message" };
const PAYLOAD = { label: "Payload" };
const TIME = { label: "Enqueued" };
const BURIED = { label: "Buried" };
const TRIED = { label: "Deliveries", numeric: true };
const SIZE = { label: "Size", numeric: true };
const REASON = { label: "Reason" };
const CHOICE = { label: "Select", hidden: true };

export function messagesPanel(context, place, query) {
  const states = STATES.filter(([key]) => place.kind !== "group" || GROUP_STATES.includes(key));
  const may = context.session.may_act;
  return listPanel(context, query, {
    states,
    columns: (state) => [...(may && CANCELLED.includes(state) ? [CHOICE] : []), ID, PAYLOAD, TIME, TRIED, SIZE],
    none: (state) => [`No ${labelOf(state).toLowerCase()} messages`, "They appear here as soon as there are some."],
    actions: (list) => may && [
      CANCELLED.includes(list.state) && list.selectionButton("Cancel selected", "cancel", async (ids) => {
        const answer = await context.api.post("cancel", query, { ids });
        toast(`${counted(answer.cancelled.length, "message")} cancelled.`);
      }),
      PURGED.includes(list.state) && button("Purge…", () => purge(context, place, query, list.state, list.read),
        { "data-action": "purge" }),
    ],
  });
}

export function deadPanel(context, place, query) {
  const may = context.session.may_act;
  return listPanel(context, query, {
    states: [["dead", "Dead"]],
    columns: () => [...(may ? [CHOICE] : []), ID, PAYLOAD, REASON, BURIED, TRIED],
    none: () => ["No dead letters", "A message that cannot be handled is kept here until somebody redrives or purges it."],
    actions: (list) => [
      may && list.selectionButton("Redrive selected", "redrive", async (ids) => {
        toastRedriven(await context.api.post("redrive", query, { ids }));
      }),
      may && button("Redrive all…", async () => {
        const agreed = await confirm({
          title: "Redrive all dead letters?", action: "Redrive all", tone: "primary",
          text: "They become pending again, with a fresh count of deliveries, in the order in which they died.",
        });
        if (!agreed) return;
        await act(async () => toastRedriven(await context.api.post("redrive", query, {})));
        list.read();
      }, { "data-action": "redrive-all" }),
      h("a", { class: "button plain", href: address("dead/export", query), download: true, "data-action": "export" }, "Export"),
      may && button("Purge…", () => purge(context, place, query, "dead", list.read), { "data-action": "purge" }),
    ],
  });
}

function toastRedriven({ redriven, blocked }) {
  const held = blocked ? `; ${count(blocked)} stayed, because another message holds their deduplication key` : "";
  toast(`${counted(redriven, "message")} redriven${held}.`, blocked && !redriven ? "bad" : "good");
}

/** Make a list of messages with search, paging and actions. */
function listPanel({ api }, query, { states, columns, none, actions }) {
  const list = { state: states[0][0], read, selectionButton };
  let starts = [0]; // of the pages up to this one; a page of large messages is shorter
  let next = null;
  let search = "";
  let asked = 0;
  let isEmpty = false; // then it is read again every second; a list that somebody reads does not move
  const selected = new Set();
  const box = h("div");
  const bar = h("div", { class: "list-actions" });
  const position = h("span", { class: "hint" });
  const newer = button("‹ Back", () => turn(starts.slice(0, -1)), { kind: "quiet", "aria-label": "Previous page" });
  const older = button("Next ›", () => turn([...starts, next]), { kind: "quiet", "aria-label": "Next page" });
  const searched = h("p", { class: "hint", role: "status" });
  const pager = h("div", { class: "pager", hidden: true }, newer, position, older);
  let waiting;
  const searching = h("input", {
    type: "search", placeholder: "Search payload, id, error", "aria-label": "Search messages", autocomplete: "off",
    spellcheck: "false",
    on: {
      input: () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => { search = searching.value; turn([0]); }, 250);
      },
    },
  });
  const node = h("div", { on: { refresh: read, tick: () => isEmpty && !search && read() } },
    h("div", { class: "tools" },
      states.length > 1 && select(states, list.state, (state) => { list.state = state; turn([0]); }, { "aria-label": "State" }),
      searching, button("Refresh", read, { kind: "quiet", "data-action": "refresh" }), bar),
    box, searched, pager);
  put(box, loading("messages"));

  function turn(pages) {
    starts = pages;
    read();
  }

  async function read() {
    asked += 1;
    const mine = asked;
    const offset = starts.at(-1);
    try {
      const answer = await api.get("messages", { ...query, state: list.state, count: PAGE, offset, search });
      if (mine === asked) show(answer.messages, answer, offset);
    } catch (refused) {
      if (mine === asked) put(box, failed(refused, read));
    }
  }

  function show(messages, { scanned, whole, next: following }, offset) {
    const ids = new Set(messages.map(({ id }) => id));
    const partly = search && whole === false && messages.length < PAGE;
    setText(searched, partly ? `Only the first ${count(scanned)} messages were searched.` : "");
    for (const id of [...selected]) if (!ids.has(id)) selected.delete(id);
    put(bar, actions(list));
    next = following;
    newer.disabled = starts.length === 1;
    older.disabled = next === null;
    setText(position, messages.length ? `${count(offset + 1)} to ${count(offset + messages.length)}` : "");
    isEmpty = !messages.length;
    pager.hidden = newer.disabled && older.disabled;
    if (!messages.length) {
      const [title, detail] = search ? ["Nothing found", "No message here contains this text."] : none(list.state);
      put(box, emptyState(title, detail));
      return;
    }
    const shown = columns(list.state);
    const { node: drawn, body } = table(`Messages, ${labelOf(list.state).toLowerCase()}`, shown, "messages");
    body.append(...messages.map((message) => row(message, shown)));
    put(box, drawn);
  }

  function row(message, shown) {
    const cells = new Map([
      [CHOICE, () => message.id !== null && checkbox(message)],
      [ID, () => h("button", { type: "button", class: "link mono", on: { click: () => viewMessage(message) } }, visible(message.id ?? "foreign value"))],
      [PAYLOAD, () => h("code", { class: "preview" }, visible((message.payload ?? "").slice(0, PREVIEW)))],
      [TIME, () => ago(message.enqueued_at)],
      [BURIED, () => ago(message.buried_at)],
      [TRIED, () => count(message.delivery_count)],
      [SIZE, () => bytes(message.size)],
      [REASON, () => [badge(visible(message.reason ?? "dead"), "bad"),
        h("span", { class: "error-text" }, visible([message.error_type, message.error].filter(Boolean).join(": ").slice(0, PREVIEW)))]],
    ]);
    return h("tr", { role: "row" }, shown.map((column) => cell(column, cells.get(column)())));
  }

  function checkbox(message) {
    const input = h("input", {
      type: "checkbox", "aria-label": `Select ${visible(message.id)}`, checked: selected.has(message.id),
      on: {
        change: () => {
          if (input.checked) selected.add(message.id);
          else selected.delete(message.id);
          put(bar, actions(list));
        },
      },
    });
    return input;
  }

  function selectionButton(label, name, work) {
    const node = button(selected.size ? `${label} (${count(selected.size)})` : label, async () => {
      node.disabled = true;
      await act(() => work([...selected]));
      selected.clear();
      read();
    }, { disabled: selected.size === 0, "data-action": name });
    return node;
  }

  read();
  return node;
}

/** The messages of a stream, the oldest first; it has no states. */
export function historyPanel({ api }, query) {
  const after = [null];
  const box = h("div");
  const shown = [ID, PAYLOAD, TIME, SIZE];
  const back = button("‹ Back", () => { after.pop(); read(); }, { kind: "quiet" });
  const next = button("Next ›", () => { after.push(last); read(); }, { kind: "quiet" });
  let last = null;
  const pager = h("div", { class: "pager", hidden: true }, back, next);
  put(box, loading("messages"));

  async function read() {
    try {
      const { messages } = await api.get("messages", { ...query, count: PAGE, after: after.at(-1) });
      back.disabled = after.length === 1;
      next.disabled = messages.length < PAGE;
      last = messages.at(-1)?.id ?? null;
      pager.hidden = back.disabled && next.disabled;
      if (!messages.length) return put(box, emptyState("No messages", "Messages stay in a stream until it is trimmed."));
      const { node, body } = table("Messages of the stream", shown, "messages");
      body.append(...messages.map((message) => h("tr", { role: "row" },
        cell(ID, h("button", { type: "button", class: "link mono", on: { click: () => viewMessage(message) } }, visible(message.id))),
        cell(PAYLOAD, h("code", { class: "preview" }, visible(message.payload.slice(0, PREVIEW)))),
        cell(TIME, ago(message.enqueued_at)), cell(SIZE, bytes(message.size)))));
      return put(box, node);
    } catch (refused) {
      return put(box, failed(refused, read));
    }
  }

  read();
  return h("div", { on: { refresh: read } },
    h("div", { class: "tools" }, button("Refresh", read, { kind: "quiet", "data-action": "refresh" })), box, pager);
}

/** Show a message; its payload is text, whatever it contains. */
export function viewMessage(message) {
  return openDialog("Message", (close) => {
    const plain = visibleLines(message.payload ?? "");
    const isJson = message.format === "json" && !message.truncated;
    const pre = h("pre", { class: "payload", tabindex: "0", "aria-label": "Payload" }, isJson ? visibleLines(indentJson(message.payload)) : plain);
    const asStored = h("input", {
      type: "checkbox", on: { change: () => setText(pre, asStored.checked ? plain : visibleLines(indentJson(message.payload))) },
    });
    const facts = [
      ["Id", message.id], ["Enqueued", dateTime(message.enqueued_at)], ["Deliveries", count(message.delivery_count)],
      ["Deduplication key", message.deduplication_key], ["Size", bytes(message.size)], ["Format", message.format],
      ["Lease", message.lease_id], ["Consumer", message.consumer], ["Reason", message.reason], ["Error", [message.error_type, message.error].filter(Boolean).join(": ")],
      ["Buried", message.buried_at && dateTime(message.buried_at)], ["Failed", message.failed_at && dateTime(message.failed_at)],
      ["Completed", message.completed_at && dateTime(message.completed_at)],
      ...Object.entries(message.headers ?? {}).map(([name, value]) => [`Header ${name}`, value]),
    ].filter(([, value]) => value !== undefined && value !== null && value !== "");
    return h("div", { class: "dialog-body" },
      h("dl", { class: "facts wide" }, facts.map(([name, value]) =>
        h("div", null, h("dt", null, visible(name)), h("dd", null, visibleLines(value))))),
      message.masked && h("p", { class: "notice" }, "Parts of the payload or of the headers are masked."),
      message.truncated && h("p", { class: "notice" }, "Only the first part of the payload is shown."),
      message.format === "binary" && h("p", { class: "notice" }, "The payload is not UTF-8; bytes that are no text are replaced."),
      pre,
      h("div", { class: "dialog-actions" },
        isJson && h("label", { class: "check" }, asStored, "as stored"),
        button("Copy payload", () => copy(message.payload ?? "")), button("Close", () => close(), { kind: "primary", autofocus: true })));
  }, { wide: true });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser allows copying on https and localhost only; select the text instead.", "bad");
  }
}

async function purge({ api }, place, query, state, afterwards) {
  let olderThan = "";
  const ages = [["", "all of them"], ["3600", "older than 1 hour"], ["86400", "older than 1 day"], ["604800", "older than 7 days"]];
  const timed = state === "dead"; // the server keeps the times of no other state in order
  const agreed = await confirm({
    title: state === "dead" ? "Purge dead letters?" : `Purge ${labelOf(state).toLowerCase()}${state === "failed" ? "" : " messages"}?`,
    text: `This deletes them for good; there is no way back.${state === "dead" ? " Export them first to keep a copy." : ""}`,
    action: "Purge", typed: place.name,
    extra: timed && field("Which", select(ages, "", (value) => { olderThan = value; })),
  });
  if (!agreed) return;
  await act(async () => {
    const body = { state, confirm: place.name, ...(olderThan && { older_than_seconds: Number(olderThan) }) };
    const answer = await api.post("purge", query, body);
    toast(`${counted(answer.purged, "message")} purged.`);
  });
  afterwards();
}

async function act(work) {
  try {
    await work();
  } catch (refused) {
    toast(refused.message, "bad");
  }
}

function labelOf(state) {
  return STATES.find(([key]) => key === state)?.[1] ?? "Dead";
}

function ago(value) {
  const seconds = epoch(value);
  if (seconds === null) return "–";
  return h("time", { title: dateTime(value) }, `${shortRoughAge(Date.now() / 1000 - seconds)} ago`);
}
