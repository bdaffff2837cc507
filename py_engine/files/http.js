/** HTTP responses that are read in parts, into buffers of the caller. */

const TEXT_MS = 10_000; // until a small text is given up
const TICK_MS = 5_000; // between two looks at a response; a thread that was busy for long has missed them
const STALL_TICKS = 6; // looks that find no new byte, after which the connection counts as lost
const ANSWER_TICKS = 12; // looks until a response must begin

/** @type {Map<string, string>} origin -> the user's token for it */
const tokens = new Map();

/** Sends a token with every request to the origin of an address; an empty one: no more. @param {string} address @param {string} token */
export function authorize(address, token) {
  tokens.clear();
  if (token) tokens.set(new URL(address).origin, token);
}

/** The header of a request to an address; a redirect to another origin does not get it. @param {string} url @returns {Record<string, string>} */
export function authorization(url) {
  const token = tokens.get(new URL(url).origin);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** An HTTP response whose body is read in parts. */
export class Body {
  /** @param {Response} response */
  constructor(response) {
    const header = (/** @type {string} */ name) => response.headers.get(name);
    const range = header("content-range");
    const total = range?.match(/\/(\d+)$/)?.[1];
    this.status = response.status;
    this.statusText = response.statusText;
    this.etag = header("etag") ?? header("last-modified") ?? "";
    this.linked = header("x-linked-etag") ?? ""; // a Hub's name for the file's contents
    this.length = Number(header("content-encoding") ? NaN : (header("content-length") ?? NaN)); // bytes of this response
    this.size = response.status === 206 ? Number(total ?? NaN) : this.length; // bytes of the file; NaN if unknown
    this.start = Number(range?.match(/^bytes (\d+)-/)?.[1] ?? NaN); // the first byte; NaN if unknown
    this.reader = response.body?.getReader();
    /** @type {Uint8Array | undefined} bytes that were read but not returned yet */
    this.rest = undefined;
    this.cancelled = false;
  }

  /**
   * Fills `target` from `at` to `end` with the next bytes, and reports their number as they arrive.
   * Returns the position reached: less than `end` if the body ended, or the connection was lost or brings nothing more.
   * @param {ArrayBuffer} target @param {number} at @param {number} end @param {(bytes: number) => void} onBytes
   */
  async fill(target, at, end, onBytes) {
    const view = new Uint8Array(target);
    let unreported = 0;
    let reported = performance.now();
    const watched = watch(STALL_TICKS, () => void this.reader?.cancel().catch(() => undefined));
    while (at < end) {
      if (!this.rest) {
        const next = await this.reader?.read().catch(() => undefined);
        watched.heard();
        if (!next || next.done) break;
        this.rest = next.value;
      }
      const piece = this.rest.subarray(0, end - at);
      view.set(piece, at);
      at += piece.length;
      unreported += piece.length;
      this.rest = piece.length < this.rest.length ? this.rest.subarray(piece.length) : undefined;
      if (performance.now() - reported > 50 && !this.cancelled) {
        onBytes(unreported);
        unreported = 0;
        reported = performance.now();
      }
    }
    watched.end();
    if (unreported && !this.cancelled) onBytes(unreported);
    return at;
  }

  /**
   * Skips `count` bytes; returns how many there were.
   * @param {number} count
   */
  async skip(count) {
    const scratch = new ArrayBuffer(Math.min(count, 1 << 20));
    let done = 0;
    while (done < count) {
      const size = Math.min(count - done, scratch.byteLength);
      const read = await this.fill(scratch, 0, size, () => undefined);
      done += read;
      if (read < size) break;
    }
    return done;
  }

  cancel() {
    this.cancelled = true; // onBytes may be a destroyed proxy
    this.reader?.cancel().catch(() => undefined);
  }
}

/**
 * Calls a function once nothing was heard for a number of looks.
 * @param {number} most @param {() => void} then
 */
function watch(most, then) {
  let ticks = 0;
  const timer = setInterval(() => ++ticks === most && then(), TICK_MS);
  return { heard: () => void (ticks = 0), end: () => clearInterval(timer) };
}

/**
 * Requests bytes [start, end) of a file. Rejects without a response (offline, CORS, abort).
 * @param {string} url @param {number} start @param {number} end @param {AbortSignal} signal
 * @param {Record<string, string>} [authorized] the header with the token; a download worker gets it with the request
 */
export async function request(url, start, end, signal, authorized = authorization(url)) {
  const headers = { ...authorized, Range: `bytes=${start}-${end - 1}` };
  const ending = new AbortController();
  const watched = watch(ANSWER_TICKS, () => ending.abort(new DOMException("no answer", "TimeoutError")));
  try {
    const either = AbortSignal.any([signal, ending.signal]);
    return new Body(await fetch(url, { headers, signal: either, cache: "no-store" }));
  } finally {
    watched.end();
  }
}

/** The size of a file by a HEAD request; NaN if the response does not say it. @param {string} url @param {AbortSignal} signal */
export async function sizeByHead(url, signal) {
  const asking = fetch(url, { method: "HEAD", headers: authorization(url), signal, cache: "no-store" });
  const response = await asking.catch(() => undefined);
  return response?.ok ? Number(response.headers.get("content-length") ?? NaN) : NaN;
}

/** The first bytes of a small text file; null if there is none. @param {string} url @param {number} most bytes */
export async function beginningOf(url, most) {
  const body = await request(url, 0, most, AbortSignal.timeout(TEXT_MS));
  const bytes = new ArrayBuffer(most);
  const length = body.status < 300 ? await body.fill(bytes, 0, most, () => undefined) : 0;
  body.cancel();
  return length ? new TextDecoder().decode(bytes.slice(0, length)) : null;
}
