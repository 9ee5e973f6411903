// All places as the events of one connection tell them: the first has everything, later ones what has changed.

import { placeKey } from "./api.js";
import { isNumber } from "./format.js";

const POINTS = 60;

/** Return what a row's sparkline draws: ready messages; of a stream, its length. */
export function readyOf(row) {
  return row.depth ? row.depth.ready : row.info?.length;
}

export class Known {
  constructor() {
    this.rows = new Map();
  }

  /** Take the data of an event; return the overview with every place. */
  take(data) {
    const before = data.since === undefined ? new Map() : this.rows;
    const changed = new Map(data.places.map((row) => [placeKey(row), row]));
    const rows = new Map();
    for (const [key, row] of before) {
      const news = changed.get(key);
      changed.delete(key);
      if (news) rows.set(key, begin({ ...news, history: extended(row.history, news.history, POINTS) }, data.at));
      else rows.set(key, data.error ? row : later(row, data.at));
    }
    for (const [key, row] of changed) rows.set(key, begin(row, data.at));
    this.rows = rows;
    return { ...data, places: [...rows.values()] };
  }
}

/** Keep since when a row is as it is. */
function begin(row, at) {
  return { ...row, at, oldest: row.depth?.oldest_ready_age_seconds };
}

/** A row that has not changed is older, and has one more point. */
function later(row, at) {
  const history = row.error ? row.history : extended(row.history, [[at, readyOf(row) ?? 0]], POINTS);
  const depth = isNumber(row.oldest) ? { ...row.depth, oldest_ready_age_seconds: row.oldest + at - row.at } : row.depth;
  return { ...row, history, depth };
}

/** Append points that are newer than those before. */
export function extended(history, points, most) {
  const last = history.at(-1)?.[0] ?? -Infinity;
  return [...history, ...points.filter(([time]) => time > last)].slice(-most);
}
