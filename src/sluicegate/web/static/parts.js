// Pieces that several views are made of: buttons, badges, tables, dialogs, notices.

import { h, newId, put, setText } from "./dom.js";
import { visible } from "./format.js";

export function button(label, onClick, { kind = "plain", ...attributes } = {}) {
  return h("button", { type: "button", class: `button ${kind}`, ...attributes, on: { click: onClick } }, label);
}

export function badge(text, tone = "neutral", attributes = {}) {
  return h("span", { class: `badge ${tone}`, ...attributes }, text);
}

/** Make a state for a list without rows: empty, loading or failed. */
export function emptyState(title, detail, action) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), detail && h("p", null, detail), action);
}

export function loading(what) {
  return h("div", { class: "empty", "aria-busy": "true" }, h("span", { class: "spinner", "aria-hidden": "true" }),
    h("p", null, `Reading ${what}…`));
}

export function failed(error, again) {
  return h("div", { class: "notice bad" }, h("p", null, visible(error.message)), again && button("Try again", again));
}

/** Make a table whose cells carry their column's name, which phones show beside the value. */
export function table(caption, columns, kind = "") {
  const head = h("tr", { role: "row" }, columns.map(({ label, numeric, hidden }) =>
    h("th", { scope: "col", role: "columnheader", class: numeric ? "numeric" : null },
      hidden ? h("span", { class: "visually-hidden" }, label) : label)));
  const body = h("tbody", { role: "rowgroup" });
  const node = h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: `table ${kind}`.trim(), role: "table" },
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", { role: "rowgroup" }, head), body));
  return { node, body };
}

export function cell(column, ...children) {
  return h("td", { role: "cell", "data-label": column.hidden ? null : column.label, class: column.numeric ? "numeric" : null }, children);
}

/** Make a labelled field of a form. */
export function field(label, control, hint) {
  const id = newId("field");
  control.id = id;
  const described = hint ? newId("hint") : null;
  if (described) control.setAttribute("aria-describedby", described);
  return h("div", { class: "field" }, h("label", { for: id }, label), control,
    hint && h("p", { class: "hint", id: described }, hint));
}

export function select(options, value, onChange, attributes = {}) {
  const node = h("select", { ...attributes, on: { change: () => onChange(node.value) } },
    options.map(([key, label]) => h("option", { value: key, selected: key === value }, label)));
  return node;
}

/** Show a short message for a while, and longer if it is an error. */
export function toast(text, tone = "good") {
  const box = document.getElementById("toasts");
  const node = h("div", { class: `toast ${tone}` }, h("span", null, visible(text)),
    h("button", { type: "button", class: "toast-close", "aria-label": "Dismiss", on: { click: () => node.remove() } }, "×"));
  box.append(node);
  while (box.childElementCount > 4) box.firstElementChild.remove();
  setTimeout(() => node.remove(), tone === "bad" ? 15_000 : 5000);
}

/** Open a dialog; it returns what `close(value)` was called with, or null when it was dismissed. */
export function openDialog(title, build, { wide = false } = {}) {
  return new Promise((resolve) => {
    const id = newId("dialog");
    let answer = null;
    const close = (value = null) => {
      answer = value;
      dialog.close();
    };
    const dialog = h("dialog", { class: wide ? "dialog wide" : "dialog", "aria-labelledby": id },
      h("header", { class: "dialog-head" }, h("h2", { id }, title),
        h("button", { type: "button", class: "icon-button", "aria-label": "Close", on: { click: () => close() } }, "×")));
    dialog.append(build(close));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    dialog.addEventListener("click", (event) => event.target === dialog && close());
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

/**
 * Ask before something that cannot be undone.
 *
 * @param {object} options
 *   typed: a text that has to be typed. extra: further controls, as a node.
 */
export function confirm({ title, text, action, typed, extra, tone = "danger" }) {
  return openDialog(title, (close) => {
    const go = h("button", { type: "submit", class: `button ${tone}`, disabled: typed !== undefined }, action);
    const input = typed === undefined ? null : h("input", {
      type: "text", autocomplete: "off", spellcheck: "false", autofocus: true,
      on: { input: () => { go.disabled = input.value !== typed; } },
    });
    return h("form", {
      class: "dialog-body",
      on: {
        submit: (event) => {
          event.preventDefault();
          if (!go.disabled) close(true);
        },
      },
    },
    h("p", null, text), extra,
    input && field(["Type ", h("code", null, visible(typed)), " to confirm"], input),
    h("div", { class: "dialog-actions" }, button("Cancel", () => close(), { autofocus: typed === undefined }), go));
  });
}

/** Make tabs: `[{key, label, panel()}]`. `select` shows one, `label` changes the text of one. */
export function tabs(name, entries, onSelect) {
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": name });
  const panel = h("div", { class: "tab-panel", role: "tabpanel", tabindex: "-1", id: newId("panel") });
  const buttons = new Map();
  let chosen = null;
  for (const { key, label } of entries) {
    const id = newId("tab");
    const text = h("span", null, label);
    const number = h("span", { class: "tab-count" });
    buttons.set(key, {
      text, number,
      node: h("button", {
        type: "button", role: "tab", id, class: "tab", "data-tab": key, "aria-selected": "false", tabindex: "-1",
        "aria-controls": panel.id, on: { click: () => choose(key) },
      }, text, number),
    });
    list.append(buttons.get(key).node);
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const keys = entries.map(({ key }) => key);
    const at = keys.indexOf(chosen) + step;
    const next = Number.isFinite(step) ? (at + keys.length) % keys.length : step < 0 ? 0 : keys.length - 1;
    choose(keys[next]);
    buttons.get(keys[next]).node.focus();
  });

  function choose(key) {
    if (key === chosen) return;
    chosen = key;
    for (const [each, { node }] of buttons) {
      node.setAttribute("aria-selected", String(each === key));
      node.tabIndex = each === key ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", buttons.get(key).node.id);
    const entry = entries.find((one) => one.key === key);
    put(panel, entry.panel());
    onSelect?.(key);
  }

  return {
    node: h("section", { class: "card tabs-card", "aria-label": name }, list, panel),
    choose,
    setCount(key, text) {
      const found = buttons.get(key);
      if (found) setText(found.number, text);
    },
    get chosen() {
      return chosen;
    },
  };
}
