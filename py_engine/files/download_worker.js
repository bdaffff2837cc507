/**
 * A worker that a page lends to the engine: it downloads and hashes records for download_workers.js, which sends
 *
 *   {id, kind, ...}   a method's name and its arguments; the answer is {id, value} or {id, error: {name, message}}
 *   {kind: "end"}     the worker ends
 *
 * It first answers {lock}: the Web Lock that it holds while it runs.
 */

import { Incoming, finished } from "./incoming.js";

/** @typedef {import("./http.js").Body} Body */

/** @type {Map<number, Incoming>} */
const records = new Map();
/** @type {Map<number, { body?: Body, controller: AbortController }>} responses, by the id of their requests */
const responses = new Map();

/** @param {number} id */
const recordOf = (id) => /** @type {Incoming} */ (records.get(id));
/** @param {number} id */
const bodyOf = (id) => /** @type {Body} */ (responses.get(id)?.body);

/** @type {Record<string, (message: any, port: MessagePort) => any>} */
const methods = {
  begin: ({ record, length }) => void records.set(record, new Incoming(length)),
  copy: ({ record, bytes, at }) => recordOf(record).copy(bytes, 0, at, bytes.byteLength),
  async request({ id, record, url, start, end, authorized }) {
    const controller = new AbortController();
    responses.set(id, { controller });
    const body = await recordOf(record)
      .request(url, start, end, controller.signal, authorized)
      .catch((error) => (responses.delete(id), Promise.reject(error)));
    responses.set(id, { controller, body });
    const { status, statusText, etag, length, size, start: first } = body;
    return { status, statusText, etag, length, size, start: first };
  },
  skip: ({ body, count }) => bodyOf(body).skip(count),
  fill: ({ id, record, body, at, end }, port) =>
    recordOf(record).fill(bodyOf(body), at, end, (bytes) => port.postMessage({ id, bytes })),
  keep: ({ record, url, at, start, end }) => recordOf(record).keep(url, at, start, end),
  take({ record }) {
    const { buffer } = recordOf(record);
    records.delete(record);
    return { buffer };
  },
  finish: ({ buffer }) => finished(buffer),
  cancel({ body }) {
    responses.get(body)?.body?.cancel();
    responses.get(body)?.controller.abort();
    responses.delete(body);
  },
  discard: ({ record }) => void records.delete(record),
  end: () => self.close(),
};

/** @param {MessagePort} port @param {any} message */
async function answer(port, message) {
  const { id, kind } = message;
  try {
    const value = await methods[kind](message, port);
    if (id) port.postMessage({ id, value }, value?.buffer ? [value.buffer] : []);
  } catch (/** @type {any} */ error) {
    if (id) port.postMessage({ id, error: { name: error?.name, message: String(error?.message ?? error) } });
  }
}

self.onmessage = ({ data: { port } }) => {
  const lock = `wisp.download ${Date.now()}.${Math.random()}`;
  const without = () => port.postMessage({ lock: null });
  const locked = () => (port.postMessage({ lock }), new Promise(() => {}));
  if (navigator.locks) navigator.locks.request(lock, locked).catch(without);
  else without();
  port.onmessage = (/** @type {MessageEvent} */ { data }) => answer(port, data);
};
