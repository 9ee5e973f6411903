// Jobs of a list by status, with progress bars, and one job in full.

import { h, List, put, setAttribute, setText } from "./dom.js";
import { count, dateTime, epoch, indentJson, isNumber, shortAge, visible, visibleLines } from "./format.js";
import { badge, button, cell, confirm, emptyState, failed, loading, openDialog, table, toast } from "./parts.js";

const STATUSES = ["waiting", "delayed", "running", "completed", "failed", "cancelled"];
const TONES = { waiting: "neutral", delayed: "neutral", running: "flight", completed: "good", failed: "bad", cancelled: "warn" };
const COLUMNS = [
  { label: "Job" }, { label: "Kind" }, { label: "Progress" }, { label: "Attempts", numeric: true }, { label: "Worker" },
  { label: "Since", numeric: true }, { label: "Act", hidden: true },
];
const COUNTS = {
  waiting: "waiting", delayed: "delayed", running: "running", completed: "completed_jobs", failed: "dead", cancelled: "cancelled_jobs",
};

export function jobsPanel(context, query) {
  const { api, session } = context;
  let status = "running";
  let busy = false;
  const box = h("div");
  const { node: drawn, body } = table("Jobs", COLUMNS);
  const list = new List(body, ({ id }) => id, (job) => makeJob(job), (node, job) => updateJob(node, job, context.now()));
  const segments = h("div", { class: "segments", role: "group", "aria-label": "Status" }, STATUSES.map((each) =>
    h("button", { type: "button", class: "segment", "data-status": each, on: { click: () => choose(each) } }, each,
      h("span", { class: "segment-count" }))));
  const node = h("div", { on: { refresh: read, tick: read } }, h("div", { class: "tools" }, segments), box);
  put(box, loading("jobs"));

  function choose(each) {
    status = each;
    mark();
    read(true);
  }

  function mark() {
    for (const segment of segments.children) setAttribute(segment, "aria-pressed", segment.dataset.status === status);
  }

  async function read(again) {
    if (busy && again !== true) return;
    busy = true;
    const asked = status;
    try {
      const { jobs, stats } = await api.get("jobs", { ...query, status });
      if (asked === status) show(jobs, stats ?? {});
    } catch (refused) {
      put(box, failed(refused, read));
    } finally {
      busy = false;
    }
  }

  function show(jobs, stats) {
    for (const segment of segments.children) {
      const value = stats[COUNTS[segment.dataset.status]];
      setText(segment.lastElementChild, isNumber(value) ? count(value) : "");
    }
    list.show(jobs);
    if (!jobs.length) put(box, emptyState(`No ${status} jobs`, status === "running" ? "Jobs are listed here while a worker holds them." : null));
    else if (box.firstChild !== drawn) put(box, drawn);
  }

  function makeJob(job) {
    const bar = h("progress", { max: 1, "aria-label": `Progress of ${visible(job.id)}` });
    const note = h("span", { class: "note" });
    const [attempts, worker, since] = [cell(COLUMNS[3]), cell(COLUMNS[4]), cell(COLUMNS[5])];
    const node = h("tr", { role: "row" },
      cell(COLUMNS[0], h("button", { type: "button", class: "link mono", on: { click: () => viewJob(node.job) } }, visible(job.id))),
      cell(COLUMNS[1], badge(visible(job.kind ?? "default"))),
      cell(COLUMNS[2], bar, note), attempts, worker, since,
      cell(COLUMNS[6], session.may_act && ["waiting", "delayed", "running"].includes(job.status) && button("Cancel", () => cancel(node.job), { kind: "quiet", "data-action": "cancel-job" }),
        session.may_act && job.status === "failed" && button("Redrive", () => redrive(node.job), { kind: "quiet", "data-action": "redrive-job" })));
    node.parts = { bar, note, attempts, worker, since };
    return node;
  }

  async function cancel(job) {
    const agreed = await confirm({
      title: "Cancel this job?", action: "Cancel the job", tone: "danger",
      text: job.status === "running" ? "Its worker is asked to stop, and decides when." : "It is removed before any worker gets it.",
    });
    if (agreed) await act(() => api.post("jobs/cancel", query, { ids: [job.id] }), "Cancelled, or its worker was asked.");
  }

  const redrive = (job) => act(() => api.post("redrive", query, { ids: [job.id] }), "Enqueued again.");

  async function act(work, done) {
    try {
      await work();
      toast(done);
    } catch (refused) {
      toast(refused.message, "bad");
    }
    read(true);
  }

  mark();
  read();
  return node;
}

function updateJob(node, job, now) {
  node.job = job;
  const { bar, note, attempts, worker, since } = node.parts;
  const done = job.status === "completed" ? 1 : job.progress;
  bar.hidden = !isNumber(done);
  if (isNumber(done)) bar.value = Math.max(0, Math.min(1, done));
  const runs = job.status === "running";
  const failing = Boolean(job.last_error) && !runs && job.status !== "completed";
  const said = job.cancel_requested && runs ? "asked to stop" : failing ? job.last_error : job.note;
  setText(note, visible((said ?? "").slice(0, 200)));
  setAttribute(note, "class", failing ? "note bad-ink" : "note");
  setText(attempts, count(job.attempts));
  setText(worker, visible(job.worker ?? "–"));
  const when = epoch(job.ended_at ?? (job.status === "running" ? job.claimed_at : null) ?? job.enqueued_at);
  setText(since, when === null ? "–" : shortAge(now - when));
}

function viewJob(job) {
  return openDialog("Job", (close) => {
    const facts = [
      ["Id", job.id], ["Kind", job.kind], ["Attempts", count(job.attempts)], ["Enqueued", dateTime(job.enqueued_at)],
      ["Claimed", job.claimed_at && dateTime(job.claimed_at)], ["Ended", job.ended_at && dateTime(job.ended_at)],
      ["Worker", job.worker], ["Lease", job.lease_id], ["Progress", isNumber(job.progress) ? `${Math.round(job.progress * 100)} %` : null],
      ["Note", job.note], ["Last error", [job.last_error_type, job.last_error].filter(Boolean).join(": ")],
    ].filter(([, value]) => value !== undefined && value !== null && value !== "");
    const texts = [["Payload", job.payload], ["Result", job.result]].filter(([, value]) => value !== undefined && value !== null);
    return h("div", { class: "dialog-body" },
      h("p", null, badge(job.status, TONES[job.status])),
      h("dl", { class: "facts wide" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, visibleLines(value))))),
      texts.map(([name, value]) => [h("h3", null, name),
        h("pre", { class: "payload", tabindex: "0", "aria-label": name }, visibleLines(indentJson(typeof value === "string" ? value : JSON.stringify(value))))]),
      h("div", { class: "dialog-actions" }, button("Close", () => close(), { kind: "primary", autofocus: true })));
  }, { wide: true });
}

