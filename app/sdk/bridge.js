import { bytesOf } from "./base64.js";
import { Reply } from "./reply.js";

/**
 * @typedef {import("../wisp.js").Wisp} Wisp
 *
 * @typedef {{ name: string, url: string, headers: Record<string, string> }} RelayedServer for `engine.mcp.connect`
 *
 * @typedef {object} Listeners
 * @property {(ticket: string) => void} [onTicket] gets the ticket for the next connection, for when the page is reloaded
 * @property {(servers: RelayedServer[]) => void} [onRelay] gets the MCP servers that the command line names
 */

const RETRY_MS = [250, 500, 1000, 2000];
const RETRIES = 60; // after these the server counts as stopped
const REPLACED = 4001; // another tab lends its engine now

/**
 * Lends this page's engine to programs of this machine (`build.py serve --api`) over one WebSocket, until the page closes
 * or another one replaces it. Messages are JSON with the `id` of a request. The server sends "request", "pull", "abort"
 * and, without an id, "ping", "ticket" and "relay", the MCP servers that it relays; the page sends "head", "piece", "end",
 * "pong". A ticket lets a page connect once, so the server sends the next one on each connection.
 */
export class Bridge {
  /** @type {Map<number, Reply>} */
  #replies = new Map();
  #failures = 0;
  #url;
  #engine;

  #listeners;

  /**
   * @param {string | URL} url ws: address @param {() => Promise<Wisp>} engine
   * @param {Listeners} listeners
   */
  constructor(url, engine, listeners) {
    this.#url = new URL(url);
    this.#engine = engine;
    this.#listeners = listeners;
    this.#connect();
  }

  #connect() {
    const socket = new WebSocket(this.#url);
    socket.onopen = () => (this.#failures = 0);
    socket.onmessage = ({ data }) => this.#receive(socket, JSON.parse(data));
    socket.onclose = ({ code }) => {
      for (const reply of this.#replies.values()) reply.abort();
      this.#replies.clear();
      if (code === REPLACED || this.#failures >= RETRIES) return;
      const wait = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)];
      setTimeout(() => this.#connect(), wait);
    };
  }

  /** @param {WebSocket} socket @param {Record<string, any>} message */
  #receive(socket, { kind, id, ...rest }) {
    /** @param {Record<string, any>} message */
    const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
    if (kind === "ping") send({ kind: "pong" });
    if (kind === "ticket") {
      this.#url.searchParams.set("ticket", rest.ticket);
      this.#listeners.onTicket?.(rest.ticket);
    }
    if (kind === "relay") this.#listeners.onRelay?.(rest.servers);
    if (kind === "pull") this.#replies.get(id)?.pull();
    if (kind === "abort") {
      this.#replies.get(id)?.abort();
      this.#replies.delete(id);
    }
    if (kind !== "request") return;
    const decoder = new TextDecoder();
    const { method, path, body, base64, type } = rest;
    /** @type {[string, string][]} */
    const headers = type ? [["content-type", type]] : [];
    const sent = base64 ? bytesOf(base64) : body;
    const asked = { method, url: path, headers, body: sent };
    const reply = new Reply(this.#engine, asked, (part) => {
      if (part.kind === "piece") return send({ id, kind: "piece", text: decoder.decode(part.piece, { stream: true }) });
      if (part.kind === "end") this.#replies.delete(id);
      send({ id, ...part });
    });
    this.#replies.set(id, reply);
  }
}
