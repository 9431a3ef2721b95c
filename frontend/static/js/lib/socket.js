/**
 * The browser's end of the cursor protocol: one socket for a page, one cursor for each run.
 *
 * The server's frames carry the cursor they start from (`prev`) and the one they end at (`seq`). A frame that does not
 * start at our cursor means that something is missing: we subscribe again from where we are. A frame that was
 * received before is dropped. So a reload, a lost connection or a restarted server leaves no gap and no duplicate.
 */

/**
 * @typedef {Omit<Api.EventAnswer, "payload"> & {payload: any}} RunEvent
 * @typedef {Api.StatusFrame} RunFrame
 * @typedef {{events?: (events: RunEvent[]) => void, run?: (frame: RunFrame) => void, synced?: (seq: number) => void,
 *   error?: (message: string) => void}} Handlers
 * @typedef {"connecting" | "live" | "reconnecting" | "delayed" | "crowded" | "gone" | "ended"} Link
 */

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** The server's close code for a login that has ended: reconnecting would not help. */
const SESSION_ENDED = 4401;
/** The server's close code for a busy database, and the number of reconnects to try. */
const TRY_AGAIN_LATER = 1013;
const BUSY_TRIES = 3;
/** The server's close code for a user who has too many sockets open. */
const TOO_MANY_SOCKETS = 4430;
const PING_MS = 15_000;
/** Without a message for this long (pings are answered) the connection counts as dead. */
const SILENCE_MS = 35_000;
/** Reconnecting for this long is shown as "live updates delayed". */
const DELAYED_MS = 10_000;

export class RunSocket {
  /** @param {(link: Link) => void} onLink is called with each new state of the connection */
  constructor(onLink) {
    /** @type {Map<string, {cursor: number, subscribedAt: number, handlers: Handlers}>} */
    this.runs = new Map();
    this.onLink = onLink;
    this.isGone = false; // the page no longer follows any run
    this.tries = 0;
    this.lostAt = 0;
    this.lastMessageAt = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    setInterval(() => this.#checkLink(), PING_MS);
    // A laptop that wakes up, or a network that returns, should not wait for a long pause to end.
    addEventListener("online", () => this.#open());
    // Without a network the socket would stay silent for half a minute before we knew.
    addEventListener("offline", () => this.#abandon());
    this.#open();
  }

  /**
   * @param {string} run
   * @param {number} after the cursor to start from; 0 for everything
   * @param {Handlers} handlers
   */
  subscribe(run, after, handlers) {
    this.runs.set(run, { cursor: after, subscribedAt: -1, handlers });
    this.isGone = false;
    this.#subscribe(run);
  }

  /** @param {string} run */
  unsubscribe(run) {
    if (this.runs.delete(run)) this.#send({ op: "unsub", run });
  }

  /** @param {string} run */
  #subscribe(run) {
    const followed = this.runs.get(run);
    if (!followed) return;
    followed.subscribedAt = followed.cursor;
    this.#send({ op: "sub", run, after: followed.cursor });
  }

  /** @param {object} message */
  #send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  #open() {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN) return;
    if (!this.lostAt) this.onLink("connecting");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws`);
    this.socket = socket;
    socket.onopen = () => {
      this.tries = 0;
      this.lostAt = 0;
      this.lastMessageAt = Date.now();
      this.onLink(this.isGone ? "gone" : "live");
      for (const run of this.runs.keys()) this.#subscribe(run);
    };
    socket.onmessage = (message) => {
      if (socket === this.socket) this.#read(message.data);
    };
    socket.onclose = (event) => {
      if (socket !== this.socket) return;
      // Only an open socket counts as a success.
      if (event.code === TRY_AGAIN_LATER || event.code === TOO_MANY_SOCKETS) this.tries = Math.max(this.tries, BUSY_TRIES);
      if (event.code === SESSION_ENDED) this.onLink("ended");
      else this.#lost();
      if (event.code === TOO_MANY_SOCKETS) this.onLink("crowded");
    };
  }

  #lost() {
    this.socket = null;
    this.lostAt ||= Date.now();
    this.onLink(Date.now() - this.lostAt > DELAYED_MS ? "delayed" : "reconnecting");
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.tries);
    this.tries += 1;
    // Jitter: fifty browsers must not reconnect in the same moment after a restart.
    setTimeout(() => this.#open(), longest * (0.5 + Math.random() / 2));
  }

  #checkLink() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    if (Date.now() - this.lastMessageAt > SILENCE_MS) this.#abandon();
    else this.#send({ op: "ping" });
  }

  /** Treat the connection as lost without waiting for the browser to notice. */
  #abandon() {
    const dead = this.socket;
    if (!dead) return;
    this.#lost();
    dead.close();
  }

  /** @param {string} text */
  #read(text) {
    this.lastMessageAt = Date.now();
    const frame = JSON.parse(text);
    if (frame.op === "link") {
      if (!this.isGone) this.onLink(frame.delayed ? "delayed" : "live"); // without Redis the server only polls
      return;
    }
    if (frame.op === "error" && !frame.run) {
      for (const { handlers } of this.runs.values()) handlers.error?.(frame.message);
      return;
    }
    const followed = this.runs.get(frame.run);
    if (!followed) return;
    if (frame.op === "run") followed.handlers.run?.(frame);
    else if (frame.op === "synced") followed.handlers.synced?.(followed.cursor);
    else if (frame.op === "error") this.#drop(frame.run, followed.handlers, frame.message);
    else if (frame.op === "events") this.#addEvents(frame, followed);
  }

  /**
   * A run that was deleted, or that its reader may no longer see: the page must not show "live".
   * @param {string} run
   * @param {Handlers} handlers
   * @param {string} message
   */
  #drop(run, handlers, message) {
    this.runs.delete(run);
    this.isGone = this.runs.size === 0;
    if (this.isGone) this.onLink("gone");
    handlers.error?.(message);
  }

  /**
   * @param {{run: string, prev: number, seq: number, events: RunEvent[]}} frame
   * @param {{cursor: number, subscribedAt: number, handlers: Handlers}} followed
   */
  #addEvents(frame, followed) {
    if (frame.seq <= followed.cursor) return;
    if (frame.prev > followed.cursor) {
      // Frames sent before our subscription arrived have the same gap: subscribe once for each cursor.
      if (followed.subscribedAt !== followed.cursor) this.#subscribe(frame.run);
      return;
    }
    const events = frame.events.filter((event) => event.seq > followed.cursor);
    followed.cursor = frame.seq;
    followed.subscribedAt = -1;
    if (events.length) followed.handlers.events?.(events);
  }
}

const WORDS = {
  connecting: "connecting…",
  live: "live",
  reconnecting: "reconnecting…",
  delayed: "live updates delayed",
  crowded: "not live: you have too many of these pages open",
  gone: "not live: it is deleted, or no longer yours to see",
  ended: "signed out: load the page again",
};

/**
 * A socket whose state is shown in the page's `[data-link]` element.
 * @returns {RunSocket}
 */
export function pageSocket() {
  const status = document.querySelector("[data-link]");
  return new RunSocket((link) => {
    if (!(status instanceof HTMLElement)) return;
    status.dataset.link = link;
    status.textContent = WORDS[link];
  });
}
