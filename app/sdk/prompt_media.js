/**
 * Pictures and sounds of the Prompt API: what the platform has as one becomes a file, which a request names.
 *
 * Read media are parts {type: "image", file} and {type: "input_audio", input_audio}. Pictures get an address for each
 * request, so that nothing but the session's messages holds their files.
 */
import { base64Of } from "./base64.js";
import { upright } from "./upright.js";
import { exactWavOf } from "./wav.js";

/**
 * @typedef {import("./prompt_messages.js").Message} Message
 * @typedef {import("./prompt_options.js").Kind} Kind
 */
const FILES = ["Blob", "File"];
const BUFFERS = ["ArrayBuffer", "SharedArrayBuffer"];
const SHOWN = [
  ...["HTMLImageElement", "SVGImageElement", "HTMLVideoElement", "HTMLCanvasElement", "OffscreenCanvas"],
  ...["ImageBitmap", "ImageData", "VideoFrame"],
];
const TAKEN = /** @type {Record<Kind, string[]>} */ ({ image: SHOWN, audio: ["AudioBuffer"] });
/** How files begin that are of the other kind: the engine would take them for what they are. */
const OTHERS = /** @type {Record<Kind, RegExp>} */ ({
  image: /^(RIFF....WAVE|OggS|ID3|fLaC|\xff[\xe0-\xff])/s,
  audio: /^(\x89PNG|\xff\xd8\xff|GIF8|BM|RIFF....WEBP|....ftypavi)/s,
});
const DAMAGED = /** @type {Record<Kind, string>} */ ({ image: "InvalidStateError", audio: "DataError" });

/** The name of a platform's class, also of an object from a frame. @param {unknown} value */
export const classOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** Throws for a value that is no picture or sound. @param {Kind} kind @param {unknown} value */
export function checkMedium(kind, value) {
  const names = [...TAKEN[kind], ...FILES, ...BUFFERS];
  if (!ArrayBuffer.isView(value) && !names.includes(classOf(value)))
    throw new TypeError(`The value of type ${kind} must be one of ${names.join(", ")}, or a view of a buffer.`);
}

/**
 * Messages with files of their media as they are now: the caller may draw on a canvas afterwards, or close a frame.
 * @param {Message[]} messages of messagesOf() @returns {Promise<Message[]>}
 */
export async function readMedia(messages) {
  return Promise.all(
    messages.map(async (message) => {
      if (typeof message.content === "string") return message;
      return { ...message, content: await Promise.all(message.content.map(read)) };
    }),
  );
}

/** @param {any} part @returns {Promise<Message>} */
async function read({ type, value, ...rest }) {
  if (type === "text") return { type, ...rest };
  const file = fileOf(value) ?? (type === "image" ? await pictureOf(value) : exactWavOf(value));
  const kind = /** @type {Kind} */ (type);
  if (!file.size) throw new DOMException(`The ${type} is empty.`, DAMAGED[kind]);
  const head = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
  if (OTHERS[kind].test(head)) throw new DOMException(`The file is no ${type}.`, DAMAGED[kind]);
  if (type === "image") return { type, file: await upright(file) };
  return { type: "input_audio", input_audio: { data: await base64Of(file), format: "wav" } }; // the engine looks itself
}

/** A copy of a file's bytes, or null. @param {any} value @returns {Blob | null} */
function fileOf(value) {
  if (FILES.includes(classOf(value))) return value;
  if (ArrayBuffer.isView(value))
    return new Blob([new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice()]);
  return BUFFERS.includes(classOf(value)) ? new Blob([new Uint8Array(value).slice()]) : null;
}

/** What is shown now, as PNG on white: models see no transparency. @param {any} source @returns {Promise<Blob>} */
async function pictureOf(source) {
  if (typeof source.decode === "function") await source.decode().catch(() => undefined); // the next line says why
  const bitmap = await createImageBitmap(source);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas.convertToBlob({ type: "image/png" });
}

/**
 * Runs a request with addresses of its pictures, which end with it. Errors of files that cannot be decoded are the
 * platform's: InvalidStateError for pictures, DataError for sounds.
 * @template T @param {Message[]} messages @param {(messages: any[]) => Promise<T>} work @returns {Promise<T>}
 */
export async function withAddresses(messages, work) {
  /** @type {string[]} */
  const urls = [];
  const addressed = (/** @type {Message} */ part) => {
    if (part.type !== "image") return part;
    urls.push(URL.createObjectURL(part.file));
    return { type: "image_url", image_url: { url: /** @type {string} */ (urls.at(-1)) } };
  };
  try {
    return await work(
      messages.map((message) =>
        Array.isArray(message.content) ? { ...message, content: message.content.map(addressed) } : message,
      ),
    );
  } catch (/** @type {any} */ error) {
    if (error?.code !== "bad_media") throw error;
    throw new DOMException(error.message, DAMAGED[error.param?.endsWith(".url") ? "image" : "audio"]);
  } finally {
    urls.forEach((url) => URL.revokeObjectURL(url));
  }
}
