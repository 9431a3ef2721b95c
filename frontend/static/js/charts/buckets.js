/** Fills a store with the server's buckets: requests what the view shows, and holds the events that arrive meanwhile. */

const AGAIN_MS = 2000;
/** This many live points after the last answer are worth a new one, in which they are buckets. */
const LONGEST_TAIL = 1000;

export class Buckets {
  /**
   * @param {string} url of the run's buckets
   * @param {import("./series.js").SeriesStore} store
   * @param {import("./view.js").ChartView} view
   * @param {{loaded: () => void, failed: (why: string) => void}} on
   */
  constructor(url, store, view, on) {
    this.url = url;
    this.store = store;
    this.view = view;
    this.on = on;
    /** Events that arrived during a request. @type {import("../lib/socket.js").RunEvent[]} */
    this.pending = [];
    this.requests = 0;
    this.requestedAt = 0;
    this.isLoading = false;
    this.isWaiting = false;
    this.isClosed = false;
    /** Of a replay: the step that it has reached, beyond which nothing is requested. @type {number | null} */
    this.limit = null;
    this.abort = new AbortController();
  }

  #query() {
    const { first, x, band } = this.view;
    const last = this.limit === null ? this.view.last : Math.min(this.view.last ?? this.limit, this.limit);
    const query = new URLSearchParams(this.store.metrics.map((metric) => ["metric", metric]));
    if (first !== null) query.set("first", String(first));
    if (last !== null) query.set("last", String(last));
    if (x !== "step") query.set("x", x);
    if (band !== "none") query.set("band", band);
    return query.toString();
  }

  /**
   * Requests until there is an answer. A later request cancels an earlier one.
   * @returns {Promise<number | null>} the seq from which the socket continues; null if this request was cancelled
   */
  async load() {
    const number = ++this.requests;
    this.abort.abort(); // an outdated answer need not be sent
    const { signal } = (this.abort = new AbortController());
    const request = { last: this.view.last, x: this.view.x };
    if (!this.isLoading) this.pending = [];
    this.isLoading = true;
    for (;;) {
      this.requestedAt = Date.now();
      const answer = await fetchBuckets(`${this.url}?${this.#query()}`, signal);
      if (number !== this.requests || this.isClosed) return null;
      if (typeof answer === "string") {
        this.on.failed(answer);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        if (number !== this.requests || this.isClosed) return null;
        continue;
      }
      this.store.load(answer, request);
      // The answer's seq is the run's newest, also where a replay has not reached it.
      for (const event of this.pending) if (event.seq > answer.seq || this.limit !== null) this.store.add(event);
      this.isLoading = false;
      this.pending = [];
      this.on.loaded();
      return answer.seq;
    }
  }

  /** Begin a replay without an answer: the lines come event by event. */
  begin() {
    this.limit = 0;
    this.on.loaded();
  }

  /**
   * @param {import("../lib/socket.js").RunEvent[]} events
   * @returns {Set<string>} the metrics that changed
   */
  add(events) {
    if (this.isLoading) this.pending.push(...events);
    const changed = new Set(events.flatMap((event) => this.store.add(event)));
    if (this.store.isStale || this.store.tail > LONGEST_TAIL) this.#loadSoon();
    return changed;
  }

  #loadSoon() {
    if (this.isLoading || this.isWaiting) return;
    this.isWaiting = true;
    const load = () => {
      this.isWaiting = false;
      if (!this.isClosed) this.load();
    };
    setTimeout(load, Math.max(0, this.requestedAt + AGAIN_MS - Date.now()));
  }
}

/**
 * @param {string} url
 * @param {AbortSignal} signal
 * @returns {Promise<Api.BucketsAnswer | string>} or the reason without one
 */
async function fetchBuckets(url, signal) {
  try {
    const answer = await fetch(url, { signal, headers: { Accept: "application/json" } });
    if (answer.ok) return await answer.json();
    return answer.status === 401 ? "signed out: load the page again" : `the server answered ${answer.status}; retrying`;
  } catch {
    return "the server cannot be reached; retrying";
  }
}
