// Who holds what until when, with countdowns; and the consumers of a group.

import { h, List, put, setAttribute, setText, svg } from "./dom.js";
import { age, count, dateTime, epoch, isNumber, shortAge, visible } from "./format.js";
import { badge, cell, emptyState, failed, loading, table } from "./parts.js";

const LEASE = [
  { label: "Lease" }, { label: "Consumer" }, { label: "Messages", numeric: true }, { label: "Held for", numeric: true },
  { label: "Expires" },
];
const SOON_SECONDS = 10;

/** Make a panel that reads a list every second while it is shown. */
function livePanel(read, show, what) {
  const box = h("div");
  let busy = false;
  const again = async () => {
    if (busy) return;
    busy = true;
    try {
      show(box, await read());
    } catch (refused) {
      put(box, failed(refused, again));
    } finally {
      busy = false;
    }
  };
  const node = h("div", { on: { refresh: again, tick: again } }, box);
  put(box, loading(what));
  again();
  return node;
}

export function leasesPanel(context, query) {
  const { node: drawn, body } = table("Leases in flight", LEASE);
  const list = new List(body, ({ lease_id: id }) => id, makeLease, (node, lease) => updateLease(node, lease, context.now()));
  return livePanel(() => context.api.get("leases", query), (box, { leases }) => {
    list.show(leases);
    if (!leases.length) put(box, emptyState("Nothing is in flight", "A claim takes messages into a lease, which is listed here until it ends."));
    else if (box.firstChild !== drawn) put(box, drawn);
  }, "leases");
}

function makeLease(lease) {
  const count_ = cell(LEASE[2]);
  const held = cell(LEASE[3]);
  const left = h("span", { class: "countdown-text" });
  const fill = svg("rect", { class: "countdown-fill", height: 6, width: 0 });
  const bar = svg("svg", { class: "countdown", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "countdown-back", width: 100, height: 6 }), fill);
  const node = h("tr", { role: "row" },
    cell(LEASE[0], h("code", null, visible(lease.lease_id))), cell(LEASE[1], visible(lease.consumer || "–")), count_, held,
    cell(LEASE[4], left, bar));
  node.parts = { count: count_, held, left, fill };
  return node;
}

function updateLease(node, lease, now) {
  const { count: count_, held, left, fill } = node.parts;
  const deadline = epoch(lease.deadline);
  const opened = epoch(lease.held_since ?? lease.opened);
  const extended = epoch(lease.extended) ?? opened;
  const seconds = deadline - now;
  setText(count_, count(lease.messages));
  setText(held, opened === null ? "–" : shortAge(now - opened));
  setText(left, seconds > 0 ? `in ${age(seconds)}` : `expired ${age(-seconds)} ago; the next claim recovers it`);
  setAttribute(left, "title", dateTime(deadline));
  setAttribute(node, "class", seconds <= 0 ? "is-expired" : seconds < SOON_SECONDS ? "is-soon" : null);
  const length = isNumber(extended) ? deadline - extended : 60;
  setAttribute(fill, "width", Math.max(0, Math.min(100, (seconds / Math.max(1, length)) * 100)).toFixed(1));
}

const CONSUMER = [
  { label: "Consumer" }, { label: "Messages", numeric: true }, { label: "Leases", numeric: true }, { label: "Idle", numeric: true },
];

export function consumersPanel(context, query) {
  const { node: drawn, body } = table("Consumers", CONSUMER);
  return livePanel(() => context.api.get("consumers", query), (box, { consumers }) => {
    if (!consumers.length) {
      put(box, emptyState("No consumer holds messages", "Consumers are listed here while they hold messages."));
      return;
    }
    put(body, consumers.map((one) => h("tr", { role: "row" },
      cell(CONSUMER[0], visible(one.name || "without a name"), one.foreign && badge("other library", "warn")), cell(CONSUMER[1], count(one.messages)),
      cell(CONSUMER[2], count(one.leases)), cell(CONSUMER[3], shortAge(one.idle_seconds)))));
    if (box.firstChild !== drawn) put(box, drawn);
  }, "consumers");
}
