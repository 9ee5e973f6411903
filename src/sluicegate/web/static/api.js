// Calls to the server. All addresses are relative to the page, so that it works under any prefix.

/** A refusal of the server, or a failure to reach it. */
export class ApiError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

export class Api {
  constructor() {
    this.csrf = "";
  }

  async session() {
    const session = await this.get("session");
    this.csrf = session.csrf ?? "";
    return session;
  }

  get(path, query = {}) {
    return this.call("GET", path, query);
  }

  /** Send a write. The token changes when the server starts anew: it is then read again, once. */
  async post(path, query = {}, body = {}) {
    try {
      return await this.call("POST", path, query, body);
    } catch (refused) {
      if (refused.status !== 403 || !refused.message.includes("X-Sluicegate-CSRF")) throw refused;
      await this.session();
      return this.call("POST", path, query, body);
    }
  }

  async call(method, path, query, body) {
    const headers = { Accept: "application/json" };
    const options = { method, headers, credentials: "same-origin", cache: "no-store", redirect: "error" };
    if (method !== "GET") {
      headers["Content-Type"] = "application/json";
      headers["X-Sluicegate-CSRF"] = this.csrf;
      options.body = JSON.stringify(body);
    }
    let response;
    try {
      response = await fetch(address(path, query), options);
    } catch {
      throw new ApiError(0, "Unreachable", "The server of this page cannot be reached.");
    }
    const answer = await response.json().catch(() => null);
    if (!response.ok) {
      const error = answer?.error ?? {};
      throw new ApiError(response.status, error.type ?? "Error", error.message ?? `The server answered ${response.status}.`);
    }
    return answer;
  }
}

/** Return the relative address of a call; empty parameters are left out. */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return `api/${path}${given.length ? `?${parameters}` : ""}`;
}

/** Return what names a row's place in a query. */
export function placeQuery({ kind, name, group }) {
  if (kind === "group") return { stream: name, group };
  return { [kind]: name };
}

/** Return the place that a query names; null for none. */
export function placeOf(parameters) {
  const [queue, stream, group, jobs] = ["queue", "stream", "group", "jobs"].map((one) => parameters.get(one));
  if (queue !== null) return { kind: "queue", name: queue, group: null };
  if (jobs !== null) return { kind: "jobs", name: jobs, group: null };
  if (stream === null) return null;
  return group === null ? { kind: "stream", name: stream, group: null } : { kind: "group", name: stream, group };
}

export function placeHref(place) {
  return `#${new URLSearchParams(placeQuery(place))}`;
}

export function placeKey({ kind, name, group }) {
  return JSON.stringify([kind, name, group ?? null]);
}
