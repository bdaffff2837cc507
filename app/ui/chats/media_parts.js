/**
 * Media in requests. A request names each as "medium:MESSAGE/INDEX", so that it is small where it is stored; its file takes
 * the name's place when the request is sent.
 */
import { base64Of } from "../../sdk/base64.js";
import { urlOf } from "../media/medium.js";
import { framesIn } from "../media/video_frames.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").Medium} Medium
 * @typedef {string | Record<string, any>[]} Content of a message in a request
 * @typedef {{ image: boolean, audio: boolean, marks?: boolean }} Senses `marks`: parts may be marked as untrusted, which
 *   other servers do not know
 */

const NAME = /^medium:(\d+)\/(\d+)$/;

/** What a model takes. Of models on other servers that is not known. @param {import("../engine.js").Loaded} loaded @returns {Senses} */
export function sensesOf({ choice, stats }) {
  if (choice.upstream) return { image: true, audio: true };
  return { image: false, audio: false, ...stats.media, marks: true };
}

/** Whether a model takes a kind of media: one that sees takes videos, as pictures. @param {Senses} senses @param {Medium["kind"]} kind */
export function takes(senses, kind) {
  if (kind === "file") return false;
  return kind === "audio" ? senses.audio : senses.image;
}

/** The content of a message, with the media that the model takes. @param {Message} message @param {Senses} senses @returns {Content} */
export function contentOf({ content, media = [], n }, senses) {
  const parts = media.flatMap(({ kind }, index) => (takes(senses, kind) ? [partOf(kind, `medium:${n}/${index}`)] : []));
  const files = media.filter(({ kind }) => kind === "file").map(({ name }) => `[Attached file: ${name}]`);
  if (files.length && senses.marks) {
    const said = content ? [{ type: "text", text: content }] : [];
    return [...parts, ...said, { type: "text", text: files.join("\n"), untrusted: true }]; // a file's name may come from anyone
  }
  const text = [content, ...files].filter(Boolean).join("\n");
  if (!parts.length) return text;
  return text ? [...parts, { type: "text", text }] : parts;
}

/** The part of a request that names a medium. @param {Medium["kind"]} kind @param {string} name */
export function partOf(kind, name) {
  if (kind === "video") return { type: "input_video", input_video: { url: name } };
  if (kind === "image") return { type: "image_url", image_url: { url: name } };
  return { type: "input_audio", input_audio: { data: name, format: "wav" } };
}

/** The text of a content, without parts that are marked as untrusted. @param {Content} content */
export function textOf(content) {
  if (typeof content === "string") return content;
  return content.map(({ text, untrusted }) => (untrusted ? "" : (text ?? ""))).join("");
}

/** A content with another text. Media and untrusted parts stay. @param {Content} content @param {Content} text @returns {Content} */
export function withText(content, text) {
  if (typeof content === "string") return text;
  const media = content.filter(({ type, untrusted }) => type !== "text" || untrusted);
  return [...media, ...(typeof text === "string" ? [{ type: "text", text }] : text)];
}

/**
 * A request with the files of its media. Those for another server travel with it; the engine in this browser reads them
 * where they are.
 * @template {{ messages: { content: Content }[] }} T
 * @param {T} request @param {Message[]} messages of the chat @param {boolean} travels @returns {Promise<T>}
 */
export async function withMedia(request, messages, travels) {
  const filled = await Promise.all(
    request.messages.map(async (message) => {
      const { content } = message;
      if (typeof content === "string") return message;
      const parts = await Promise.all(content.map((part) => filledParts(part, messages, travels)));
      return { ...message, content: parts.flat() };
    }),
  );
  return { ...request, messages: filled };
}

/** @param {Record<string, any>} part @param {Message[]} messages @param {boolean} travels */
async function filledParts(part, messages, travels) {
  const [, n, index] = NAME.exec(part.image_url?.url ?? part.input_audio?.data ?? part.input_video?.url ?? "") ?? [];
  const medium = messages.find((message) => String(message.n) === n)?.media?.[Number(index)];
  if (!medium) return part;
  const { blob, kind } = medium;
  if (kind === "video") return travels ? picturesOf(medium) : { ...part, input_video: { frames: framesOf(medium) } };
  if (kind === "audio") {
    const format = /mpeg|mp3/.test(blob.type) ? "mp3" : "wav"; // OpenAI knows no others; the engine looks itself
    return { ...part, input_audio: { data: await base64Of(blob), format } };
  }
  const url = travels ? await dataUrlOf(blob) : urlOf(blob);
  return { ...part, image_url: { url } };
}

/** @param {Blob} blob */
const dataUrlOf = async (blob) => `data:${blob.type};base64,${await base64Of(blob)}`;

/** The pictures of a video for the engine in this browser, which writes their times. @param {Medium} medium */
const framesOf = (medium) => framesIn(medium).map(({ seconds, blob }) => ({ seconds, url: urlOf(blob) }));

/**
 * The time of a picture as llama.cpp's server writes it, as time_text() in py_engine/media/videos.py does.
 * @param {number} seconds from the beginning
 */
export function timeText(seconds) {
  const above = Math.round(100 * seconds);
  const hundredths = above - 100 * seconds === 0.5 && above % 2 ? above - 1 : above; // of two as near the even one
  return `[${Math.floor(hundredths / 6000)}m${((hundredths % 6000) / 100).toFixed(2)}s]`;
}

/** The pictures of a video for another server, each after its time. @param {Medium} medium */
async function picturesOf(medium) {
  const parts = await Promise.all(
    framesIn(medium).map(async ({ seconds, blob }) => [
      { type: "text", text: timeText(seconds) },
      { type: "image_url", image_url: { url: await dataUrlOf(blob) } },
    ]),
  );
  return parts.flat();
}
