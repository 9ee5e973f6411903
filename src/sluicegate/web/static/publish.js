// The form that publishes messages or enqueues jobs.

import { h } from "./dom.js";
import { counted, visible } from "./format.js";
import { button, field, openDialog, select, toast } from "./parts.js";

export function publishDialog({ api }, place) {
  const query = place.kind === "jobs" ? { jobs: place.name } : { [place.kind]: place.name };
  const isJobs = place.kind === "jobs";
  return openDialog(isJobs ? `Enqueue jobs in ${visible(place.name)}` : `Publish to ${visible(place.name)}`, (close) => {
    const payload = h("textarea", { rows: 7, spellcheck: "false", class: "mono", autofocus: true, required: true }, "{}");
    let format = "json";
    const formats = select([["json", "JSON"], ["text", "Text"]], format, (value) => { format = value; }, {});
    const isStream = place.kind === "stream";
    const kind = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "default" });
    const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const delay = h("input", { type: "number", min: 0, step: "any", value: 0 });
    const copies = h("input", { type: "number", min: 1, max: 10_000, step: 1, value: 1 });
    const headers = h("textarea", { rows: 2, spellcheck: "false", class: "mono", placeholder: "source: page" });
    const wrong = h("p", { class: "notice bad", hidden: true, role: "alert" });
    const go = h("button", { type: "submit", class: "button primary" }, isJobs ? "Enqueue" : "Publish");
    const complain = (text) => {
      wrong.hidden = !text;
      wrong.textContent = visible(text);
    };
    const submit = async (event) => {
      event.preventDefault();
      complain("");
      go.disabled = true;
      try {
        if (format === "json") checkJson(payload.value);
        const body = { payload: payload.value, ...(isJobs ? {} : { format }), headers: parseHeaders(headers.value) };
        if (isJobs && kind.value) body.kind = kind.value;
        if (key.value) body.deduplication_key = key.value;
        if (Number(delay.value) > 0) body.delay_seconds = Number(delay.value);
        if (Number(copies.value) > 1) body.count = Number(copies.value);
        const answer = await api.post("publish", query, body);
        const duplicates = answer.duplicates ? `, ${counted(answer.duplicates, "duplicate")} refused` : "";
        toast(`${counted(answer.accepted, isJobs ? "job" : "message")} ${isJobs ? "enqueued" : "published"}${duplicates}.`);
        close(true);
      } catch (refused) {
        complain(refused.message);
      } finally {
        go.disabled = false;
      }
    };
    return h("form", { class: "dialog-body", on: { submit } },
      field("Payload", payload), wrong,
      h("div", { class: "field-row" },
        isJobs ? field("Kind", kind) : field("Format", formats), field("Copies", copies),
        !isStream && field("Delay in seconds", delay)),
      field("Deduplication key", key, "While another message holds this key, the publish is refused as a duplicate."),
      field("Headers", headers, "One per line, as name: value."),
      h("div", { class: "dialog-actions" }, button("Cancel", () => close()), go));
  });
}

function checkJson(text) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`The payload is not JSON: ${error.message}`);
  }
}

function parseHeaders(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`The header "${line}" has no name; write name: value.`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}
