/**
 * The calls of functions that an answer makes, put together from its chunks. Other servers' chunks may have anything in
 * them: an index that is none, or that all calls share, ids that repeat, calls without end.
 */

/** @typedef {{ index: unknown, id: string, name: string, arguments: string }} CallParts `index`: the server's */

const MOST_CALLS = 128; // of an answer

/**
 * Adds what a chunk says of calls.
 * @template {Partial<CallParts> & { id: string, name: string, arguments: string }} Call
 * @param {Call[]} calls @param {unknown} deltas `delta.tool_calls` of a chunk
 */
export function addCallParts(calls, deltas) {
  for (const delta of Array.isArray(deltas) ? deltas : []) {
    if (!delta || typeof delta !== "object") continue;
    const { index, id, function: part } = delta;
    const { name, arguments: args } = Object(part);
    const known = typeof index !== "number" && isText(id) ? calls.findLast((one) => one.id === id) : undefined;
    const last = known ?? calls.findLast((one) => one.index === index);
    // without an id, a name after arguments is the next call's
    const another = isText(id) ? isText(last?.id) && last.id !== id : Boolean(last?.arguments);
    const begins = !last || (!known && isText(name) && another);
    if (begins && calls.length === MOST_CALLS) continue;
    const call = begins ? /** @type {Call} */ ({ index, id: "", name: "", arguments: "" }) : last;
    if (begins) calls.push(call);
    call.id ||= isText(id) && !calls.some((other) => other.id === id) ? id : "";
    if (isText(name)) call.name += name;
    if (isText(args)) call.arguments += args;
  }
}

/** @param {unknown} value @returns {value is string} */
const isText = (value) => typeof value === "string" && value !== "";
