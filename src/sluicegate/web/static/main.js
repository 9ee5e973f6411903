// Starts the page: session, routes, live connection, keyboard.

import { address, Api, placeOf } from "./api.js";
import { h, put, setAttribute, setText } from "./dom.js";
import { demoView } from "./demo.js";
import { shortAge, visible } from "./format.js";
import { Live } from "./live.js";
import { overviewView } from "./overview.js";
import { badge, button, emptyState, failed, loading, openDialog } from "./parts.js";
import { placeView } from "./place.js";

const TICK_MS = 1000;
const SINGLE_KEYS = "sluicegate-single-keys";
const SHORTCUTS = [
  ["?", "show these shortcuts"], ["/", "filter the overview"], ["o", "overview"],
  ["j  k", "next and previous place in the overview"], ["1 … 5", "tabs of a place"], ["p", "publish"],
  ["r", "refresh"], ["Esc", "close a dialog"],
];

const byId = (id) => document.getElementById(id);
const api = new Api();
const context = { api, session: null, now: () => Date.now() / 1000 + ahead };
let ahead = 0; // seconds by which the server's clock is ahead of this one
let view = null;
let retryAt = null;

const stateText = h("span", { class: "live-text" });
const stateNode = h("button", {
  type: "button", class: "live", "data-state": "connecting", on: { click: () => live.reconnect() },
}, h("i", { class: "live-dot", "aria-hidden": "true" }), stateText);
const stateNews = h("span", { class: "visually-hidden", role: "status" });

const live = new Live({
  onState: showState,
  onOverview: (data) => {
    if (Number.isFinite(data.at)) ahead = data.at - Date.now() / 1000;
    showTrouble(data.error);
    view?.onOverview?.(data);
  },
  onPlace: (data) => !data.error && view?.onPlace?.(data),
  onRefused: checkSession,
});

function showState(state, at = null) {
  retryAt = at;
  const texts = { connecting: "Connecting…", live: "Live", waiting: "Reconnecting", away: "Paused" };
  const changed = stateNode.dataset.state !== state;
  setAttribute(stateNode, "data-state", state);
  setText(stateText, texts[state]);
  if (changed && state !== "connecting") setText(stateNews, state === "live" ? "Live data" : "Connection lost, reconnecting");
  countDown();
}

function countDown() {
  if (retryAt === null) {
    setAttribute(stateNode, "title", "Reconnect now");
    return;
  }
  const seconds = Math.max(0, (retryAt - Date.now()) / 1000);
  setText(stateText, `Reconnecting in ${shortAge(seconds)}`);
}

/** Say that Redis cannot be read: what is shown is then what was read last. */
function showTrouble(error) {
  const shown = byId("trouble");
  if (!error) {
    shown?.remove();
    return;
  }
  const text = `Redis cannot be read; these are the last values. ${visible(error.message ?? "")}`;
  if (shown) setText(shown, text);
  else byId("main").before(h("p", { class: "notice bad strip", id: "trouble", role: "alert" }, text));
}

/** The stream was refused or broke: look whether the login has ended. */
async function checkSession() {
  try {
    await api.session();
  } catch (refused) {
    if (refused.status === 401) location.reload();
  }
}

function route(event) {
  const hash = location.hash.slice(1);
  const place = placeOf(new URLSearchParams(hash));
  if (hash === "main") return;
  view?.leave?.();
  if (hash === "demo" && context.session.demo) view = demoView(context);
  else if (place) view = placeView(context, place);
  else view = overviewView({ onDemo: context.session.demo });
  put(byId("main"), view.node);
  document.title = `${view.title} – ${context.session.title}`;
  window.scrollTo(0, 0);
  if (event) byId("main").focus(); // a screen reader begins with the new view
  live.listen(address("events", view.query));
}

function tick() {
  countDown();
  if (!document.hidden && stateNode.dataset.state !== "away") view?.tick?.();
}

function showSession(session) {
  setText(byId("title"), visible(session.title));
  setText(byId("server"), visible(session.server));
  setText(byId("foot"), `Sluicegate ${session.version}`);
  put(byId("actions"),
    session.demo && h("a", { href: "#demo", class: "button quiet" }, "Demo"),
    session.masks && badge("masked", "neutral", { title: "Parts of payloads and headers are masked" }),
    session.may_act ? null : badge("read only", "warn"),
    stateNode, stateNews,
    button("?", showShortcuts, { kind: "icon-button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts" }),
    session.logout && button("Log out", logOut, { kind: "quiet" }));
}

async function logOut() {
  live.stop();
  await fetch("logout", {
    method: "POST", body: "{}",
    headers: { "Content-Type": "application/json", "X-Sluicegate-CSRF": api.csrf },
  }).catch(() => null);
  location.hash = "";
  location.reload();
}

function singleKeys() {
  try {
    return localStorage.getItem(SINGLE_KEYS) !== "off";
  } catch {
    return true;
  }
}

function showShortcuts() {
  const enabled = h("input", {
    type: "checkbox", checked: singleKeys(),
    on: {
      change: () => {
        try {
          localStorage.setItem(SINGLE_KEYS, enabled.checked ? "on" : "off");
        } catch {
          enabled.checked = true;
        }
      },
    },
  });
  openDialog("Keyboard shortcuts", (close) => h("div", { class: "dialog-body" },
    h("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, text]) =>
      h("div", null, h("dt", null, keys.split("  ").map((key) => h("kbd", null, key))), h("dd", null, text)))),
    h("div", { class: "dialog-actions" }, h("label", { class: "check" }, enabled, "single keys are shortcuts"),
      button("Close", () => close(), { kind: "primary", autofocus: true }))));
}

function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (!singleKeys() && event.key !== "?") return;
  const digit = /^[1-5]$/.test(event.key) ? Number(event.key) - 1 : null;
  const actions = {
    "?": showShortcuts,
    "/": () => (view.focusFilter ? view.focusFilter() : goToOverview()),
    o: goToOverview,
    p: () => view.publish?.(),
    r: () => view.refresh?.() ?? live.reconnect(),
    j: () => step(1),
    k: () => step(-1),
  };
  const act = digit === null ? actions[event.key] : () => view.chooseTab?.(digit);
  if (!act) return;
  event.preventDefault();
  act();
}

function goToOverview() {
  location.hash = "";
}

function step(by) {
  const links = [...document.querySelectorAll(".place-link")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at === -1 ? 0 : at + by))].focus();
}

async function start() {
  put(byId("main"), loading("the page"));
  try {
    context.session = await api.session();
  } catch (refused) {
    if (refused.status === 401) return put(byId("main"), emptyState("You are not logged in", null, button("Log in", () => location.reload())));
    return put(byId("main"), failed(refused, start));
  }
  showSession(context.session);
  window.addEventListener("hashchange", route);
  document.addEventListener("keydown", onKey);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  setInterval(tick, TICK_MS);
  if (context.session.demo && !location.hash) history.replaceState(null, "", "#demo");
  return route();
}

start();
