// Numbers, ages and times in words.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const ONE_DIGIT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];
// Control characters, and those that reorder or hide the text around them.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const NOTHING = "–";

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Format a count with thousands separators. */
export function count(value) {
  return isNumber(value) ? WHOLE.format(value) : NOTHING;
}

/** Format a count for an axis: 12.5K. */
export function compact(value) {
  return isNumber(value) ? (Math.abs(value) < 10_000 ? ONE_DIGIT.format(value) : SHORT.format(value)) : NOTHING;
}

/** Format a rate per second. */
export function rate(value) {
  if (!isNumber(value)) return NOTHING;
  if (value > 0 && value < 0.1) return "< 0.1";
  return value < 10 ? ONE_DIGIT.format(value) : WHOLE.format(value);
}

/** Format a count with its noun. */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Format a duration in words: the largest unit, and the next one while that says something. */
export function age(seconds, whenNone = NOTHING) {
  if (!isNumber(seconds)) return whenNone;
  const whole = Math.max(0, Math.round(seconds));
  if (whole === 0) return "just now";
  const index = UNITS.findIndex(([, size]) => whole >= size);
  const [unit, size] = UNITS[index];
  const first = Math.floor(whole / size);
  const words = [counted(first, unit)];
  const next = UNITS[index + 1];
  if (next && first < 10) {
    const second = Math.floor((whole % size) / next[1]);
    if (second) words.push(counted(second, next[0]));
  }
  return words.join(" ");
}

/** Format a duration for an axis: one number and its unit. */
export function axisAge(seconds) {
  const [unit, size] = [["d", 172_800, 86_400], ["h", 7200, 3600], ["min", 60, 60]].find(([, least]) => seconds >= least)
    ?.filter((_, index) => index !== 1) ?? ["s", 1];
  return `${ONE_DIGIT.format(seconds / size)} ${unit}`;
}

/** Format a duration by its largest unit only. */
export function roughAge(seconds, whenNone = NOTHING) {
  return isNumber(seconds) && seconds >= 120 ? age(seconds).split(" ").slice(0, 2).join(" ") : age(seconds, whenNone);
}

/** Format a duration briefly: 1 h 5 min. */
export function shortAge(seconds, whenNone = NOTHING) {
  return shorten(age(seconds, whenNone));
}

/** The same by its largest unit only: 1 h. */
export function shortRoughAge(seconds, whenNone = NOTHING) {
  return shorten(roughAge(seconds, whenNone));
}

function shorten(words) {
  return words
    .replace(/ days?/g, " d").replace(/ hours?/g, " h").replace(/ minutes?/g, " min").replace(/ seconds?/g, " s")
    .replace("just now", "0 s");
}

export function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  if (value < 1024) return `${WHOLE.format(value)} B`;
  if (value < 1024 ** 2) return `${ONE_DIGIT.format(value / 1024)} KB`;
  return `${ONE_DIGIT.format(value / 1024 ** 2)} MB`;
}

/** Return the seconds since 1970 of a time, which the server sends as a number or as ISO text; null without one. */
export function epoch(value) {
  if (isNumber(value)) return value;
  if (typeof value !== "string" || value === "") return null;
  const parsed = Date.parse(value) / 1000;
  return isNumber(parsed) ? parsed : null;
}

export function clockTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function dateTime(value) {
  const seconds = epoch(value);
  if (seconds === null) return NOTHING;
  const date = new Date(seconds * 1000);
  return `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

/** Show characters that would reorder or hide text as their code: a name must look like what it is. */
export function visible(text) {
  return String(text).replace(INVISIBLE, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The same for several lines: line breaks and tabs stay. */
export function visibleLines(text) {
  return String(text).replace(INVISIBLE, (one) => (one === "\n" || one === "\t" ? one : visible(one)));
}

/** Indent JSON without parsing it, so that every number keeps its digits and every key its place. */
export function indentJson(text) {
  let depth = 0;
  let out = "";
  const breakLine = () => `\n${"  ".repeat(depth)}`;
  for (const token of text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+|"/gs) ?? []) {
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + breakLine();
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      out = /[{[]\s*$/.test(out) ? out.trimEnd() + token : out + breakLine() + token;
    } else if (token === ",") {
      out += token + breakLine();
    } else {
      out += token === ":" ? ": " : token;
    }
  }
  return out;
}

/** Say in words what opens a gate. */
export function plainGate({ min_ready: ready, max_age_seconds: oldest, min_dead: dead }) {
  const conditions = [
    isNumber(ready) && `${counted(ready, "message is", "messages are")} ready`,
    isNumber(oldest) && `the oldest has waited ${age(oldest)}`,
    isNumber(dead) && `${counted(dead, "message is", "messages are")} dead`,
  ].filter(Boolean);
  return `Opens when ${conditions.join(" or ")}.`;
}
