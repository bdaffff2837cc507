/**
 * What a chat and its messages look like, in a file and in the storage. A file that is imported must look so. What was
 * stored may be damaged; then all else of it is still shown.
 */
import { t } from "../../language/phrase.js";

/**
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 * @typedef {import("./database.js").Message} Message
 * @typedef {Record<string, (value: any) => boolean>} Shape
 */

// A type may have parameters, as in "text/plain; charset=utf-8".
const DATA = /^data:((?:image|audio|video)\/.+?)?;base64,[A-Za-z0-9+/]*=*$/;
export const FILE = /^data:(.*?);base64,([A-Za-z0-9+/]*=*)$/;
const DAMAGED = "damaged";
// Of a video, as app/openai/video_fields.py takes them.
const MOST_PICTURES = 128;
const MOST_SECONDS = 180_000;
const MOST = 2 ** 52; // limit of messages' numbers: numbers just above it are exact, too

/** @param {unknown} value */
const isText = (value) => typeof value === "string";
/** @param {unknown} value */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
/** A time in ms that Date takes. @param {any} value */
const isTime = (value) => isNumber(value) && !Number.isNaN(new Date(value).getTime());
/** @param {unknown} value */
const isBoolean = (value) => typeof value === "boolean";
/** @param {any} value */
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @param {(value: any) => boolean} isGood @returns {(value: any) => boolean} */
const isListOf = (isGood) => (value) => Array.isArray(value) && value.every(isGood);
/** @param {(value: any) => boolean} isGood @returns {(value: any) => boolean} */
const maybe = (isGood) => (value) => value === undefined || isGood(value);
/** @param {(value: any) => boolean} isGood @returns {(value: any) => boolean} */
const orNone = (isGood) => maybe((value) => value === null || isGood(value));
/** @param {Shape} shape @returns {(value: any) => boolean} */
const isOf = (shape) => (value) =>
  isObject(value) && Object.entries(shape).every(([name, isGood]) => isGood(value[name]));

/** A file's bytes: text in a file of chats, a blob in the storage. @param {any} file @param {RegExp} form */
const hasBytes = ({ data, blob }, form) => blob instanceof Blob || form.test(data);

/** The number of a file's bytes. @param {any} file with bytes */
const sizeOf = ({ data, blob }) =>
  blob instanceof Blob ? blob.size : Math.floor((6 * data.slice(data.indexOf(",") + 1).replace(/=+$/, "").length) / 8);

/** Whether a video can be asked about: its bytes are its pictures, in order of time, as the engine takes them. @param {any} value */
function hasPictures({ frames, ...file }) {
  if (!frames?.length || frames.length > MOST_PICTURES) return false;
  const isInPlace = (/** @type {any} */ { seconds, bytes }, /** @type {number} */ i) =>
    seconds >= (frames[i - 1]?.seconds ?? 0) && seconds <= MOST_SECONDS && Number.isSafeInteger(bytes) && bytes > 0;
  const total = frames.reduce((/** @type {number} */ sum, /** @type {any} */ { bytes }) => sum + bytes, 0);
  return frames.every(isInPlace) && total === sizeOf(file);
}

const isSource = isOf({ document: isText, text: isText, heading: orNone(isText), page: orNone(isNumber) });
const isFile = (/** @type {any} */ value) => isOf({ name: isText })(value) && hasBytes(value, FILE);
const isMedium = (/** @type {any} */ value) =>
  isOf({
    kind: (kind) => ["image", "audio", "video", "file"].includes(kind),
    name: isText,
    seconds: maybe(isNumber),
    peaks: maybe(isListOf(isNumber)),
    frames: maybe(isListOf(isOf({ seconds: isNumber, bytes: isNumber }))),
    tokens: maybe(isNumber),
  })(value) &&
  hasBytes(value, value.kind === "file" ? FILE : DATA) &&
  (value.kind !== "video" || hasPictures(value));
const isCall = isOf({
  id: isText,
  name: isText,
  arguments: isText,
  state: (state) => ["asked", "running", "done", "failed", "refused"].includes(state),
  text: maybe(isText),
  files: maybe(isListOf(isFile)),
});
const isStep = isOf({ content: isText, calls: isListOf(isCall), reasoning: maybe(isText), thoughtMs: maybe(isNumber) });
const isToken = (/** @type {any} */ token) =>
  Array.isArray(token) && isNumber(token[0]) && isNumber(token[1]) && isListOf(isListOf(isNumber))(token[2]);
const isRequest = isOf({ model: maybe(isText) });
const isTrace = isOf({
  request: isRequest,
  begun: maybe(isText),
  journal: isOf({ choices: isListOf(isOf({ batches: isListOf(isListOf(isToken)) })) }),
});
const isCut = isOf({
  request: isRequest,
  begun: maybe(isText),
  journal: isOf({ choices: isListOf(orNone(isOf({ batches: isListOf(Array.isArray) }))) }),
});

/** What a chat's entry has. @type {Shape} */
export const CHAT = { id: (id) => isText(id) && id !== "", title: isText, created: isTime, updated: isTime };
/** What a chat's entry may have. @type {Shape} */
export const CHAT_OPTIONS = {
  titledBy: isText,
  shown: (n) => n === null || isNumber(n),
  pinned: isBoolean,
  folder: isText,
  settings: isObject,
  assistant: isOf({ id: isText, name: isText, settings: isObject }),
  tools: isListOf(isText),
  allowed: isListOf(isText),
};
/** What a message has. @type {Shape} */
export const MESSAGE = {
  n: (n) => Number.isSafeInteger(n) && n >= 0 && n < MOST,
  role: (role) => role === "user" || role === "assistant",
  content: isText,
};
/** What a message may have. @type {Shape} */
export const MESSAGE_OPTIONS = {
  parent: (n) => n === null || Number.isSafeInteger(n),
  media: isListOf(isMedium),
  reasoning: isText,
  thoughtMs: isNumber,
  finish: (value) => ["stop", "length", "stopped", "error"].includes(value),
  error: isOf({ message: isText, code: isText, until: maybe(isTime) }),
  stats: isOf({
    tokens: isNumber,
    perSecond: isNumber,
    firstMs: isNumber,
    prompt: orNone(isNumber),
    cached: orNone(isNumber),
    context: orNone(isNumber),
  }),
  model: isText,
  dropped: isNumber,
  words: isOf({ shown: isListOf(isNumber), texts: (texts) => isObject(texts) && Object.values(texts).every(isText) }),
  trace: isTrace,
  toolCalls: isListOf(isOf({ id: isText, name: isText, arguments: isText })),
  steps: isListOf(isStep),
  budget: (value) => value === "turns" || value === "tokens",
  sources: isListOf(isSource),
  cut: isCut,
  upstream: isText,
};

/** The names of what is missing or wrong. @param {any} object @param {Shape} required @param {Shape} optional */
export const faultsOf = (object, required, optional) => [
  ...Object.keys(required).filter((name) => !required[name](object[name])),
  ...Object.keys(optional).filter((name) => object[name] !== undefined && !optional[name](object[name])),
];

/** An object without some of its fields. @param {any} object @param {string[]} names @returns {any} */
const without = (object, names) => Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));

/** A chat's entry without what is damaged of it. @param {ChatInfo} info @returns {ChatInfo} */
export function readableInfo(info) {
  const faults = faultsOf(info, CHAT, CHAT_OPTIONS);
  if (!faults.length) return info;
  const missing = { title: `${t("Damaged chat")}`, created: 0, updated: 0, shown: null };
  return { ...missing, ...without(info, faults), id: info.id };
}

/**
 * The messages of a chat, without what is damaged of them. One without a readable text becomes an answer that says so.
 * @param {Message[]} messages in the order of their numbers @returns {Message[]}
 */
export function readableMessages(messages) {
  const numbered = messages.filter(({ n }) => MESSAGE.n(n));
  return numbered.map((message, index) => {
    const faults = faultsOf(message, MESSAGE, MESSAGE_OPTIONS);
    const { parent = numbered[index - 1]?.n ?? null, ...rest } = without(message, faults);
    const media = faults.includes("media") && Array.isArray(message.media) ? message.media.filter(isMedium) : [];
    if (media.length) rest.media = media; // a damaged file takes no other one with it
    if (rest.role && rest.content !== undefined) return { ...rest, parent };
    const error = { message: `${t("This message is damaged and cannot be shown.")}`, code: DAMAGED };
    return { n: rest.n, parent, role: "assistant", content: "", finish: "error", error };
  });
}

/** Whether a message stands for one that could not be read. @param {Message} message */
export const isDamaged = ({ error }) => error?.code === DAMAGED;
