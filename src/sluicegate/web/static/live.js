// The stream of server-sent events: one connection, its state, and reconnecting with growing pauses.

import { Known } from "./known.js";

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
const SILENT_MS = 25_000;
const HIDDEN_MS = 30_000;

/**
 * Keeps one connection open while the page is visible.
 *
 * States: `connecting`, `live`, `waiting` (with the time of the next attempt), `away` (the page is hidden).
 */
export class Live {
  constructor({ onState, onOverview, onPlace, onRefused }) {
    Object.assign(this, { onState, onOverview, onPlace, onRefused });
    this.address = null;
    this.source = null;
    this.pause = FIRST_PAUSE_MS;
    this.timers = {};
    document.addEventListener("visibilitychange", () => this.changeVisibility());
    window.addEventListener("online", () => this.reconnect());
  }

  /** Listen to an address instead of the present one. */
  listen(address) {
    if (address === this.address && this.source) return;
    this.address = address;
    this.pause = FIRST_PAUSE_MS;
    this.connect();
  }

  reconnect() {
    this.pause = FIRST_PAUSE_MS;
    if (this.address) this.connect();
  }

  stop() {
    clearTimeout(this.timers.retry);
    clearTimeout(this.timers.silence);
    this.source?.close();
    this.source = null;
  }

  connect() {
    this.stop();
    this.onState("connecting");
    const source = new EventSource(this.address);
    const known = new Known();
    this.source = source;
    const receive = (handle) => (event) => {
      if (source !== this.source) return;
      let data;
      try {
        data = JSON.parse(event.data);
      } catch {
        return;
      }
      this.alive();
      handle(data);
    };
    source.addEventListener("open", () => source === this.source && this.alive());
    source.addEventListener("overview", receive((data) => this.onOverview(known.take(data))));
    source.addEventListener("place", receive(this.onPlace));
    source.addEventListener("heartbeat", receive(() => {}));
    source.addEventListener("error", () => source === this.source && this.lost());
    this.watch();
  }

  alive() {
    this.pause = FIRST_PAUSE_MS;
    this.onState("live");
    this.watch();
  }

  watch() {
    clearTimeout(this.timers.silence);
    this.timers.silence = setTimeout(() => this.lost(), SILENT_MS);
  }

  lost() {
    this.stop();
    this.onRefused();
    const pause = this.pause * (0.8 + 0.4 * Math.random());
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE_MS);
    this.onState("waiting", Date.now() + pause);
    this.timers.retry = setTimeout(() => this.connect(), pause);
  }

  changeVisibility() {
    clearTimeout(this.timers.hidden);
    if (document.hidden) {
      // A hidden page gives its connection back: browsers allow six per server.
      this.timers.hidden = setTimeout(() => {
        this.stop();
        this.onState("away");
      }, HIDDEN_MS);
    } else if (!this.source) {
      this.reconnect();
    }
  }
}
