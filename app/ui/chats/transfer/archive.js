/** Reads the ZIP archives that ChatGPT and Claude export: conversations.json beside pictures of any size. */
import { t } from "../../../language/phrase.js";

const END = 0x06054b50; // "PK\5\6"
const END_BYTES = 22; // without a comment
const COMMENT = 0xffff; // bytes of the longest one
const ENTRY = 0x02014b50; // "PK\1\2"
const ENTRY_BYTES = 46; // of the directory, before its name
const LOCAL_BYTES = 30; // before the name of a file's own header
const STORED = 0;
const DEFLATED = 8;
const MOST = 500e6; // bytes of all files of chats, which may be one text: V8's longest string has 2 ** 29 - 24 characters
const CHATS = /(^|\/)conversations[^/]*\.json$/;

/** @typedef {{ name: string, method: number, packed: number, size: number, at: number }} Entry */

/** @param {Blob} file */
export const isArchive = async (file) => (await file.slice(0, 4).text()) === "PK\x03\x04";

/** The texts of an archive's files of conversations. @param {Blob} file @returns {Promise<string[]>} */
export async function conversationsOf(file) {
  const found = (await directory(file)).filter(({ name }) => CHATS.test(name));
  if (!found.length) throw new Error(`${t("This ZIP archive has no conversations.json.")}`);
  if (found.reduce((sum, { size }) => sum + size, 0) > MOST) throw damaged();
  const texts = [];
  for (const entry of found.sort((a, b) => a.name.localeCompare(b.name))) texts.push(await textOf(file, entry));
  return texts;
}

/** @param {Blob} file @returns {Promise<Entry[]>} */
async function directory(file) {
  const tail = await bytesOf(file, Math.max(0, file.size - END_BYTES - COMMENT), file.size);
  let end = tail.byteLength - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== END) end--;
  if (end < 0) throw damaged();
  const [size, start] = [tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  const view = await bytesOf(file, start, start + size);
  const entries = [];
  for (let at = 0; at + ENTRY_BYTES <= view.byteLength;) {
    if (view.getUint32(at, true) !== ENTRY) throw damaged();
    const [name, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    if (at + ENTRY_BYTES + name > view.byteLength) throw damaged();
    entries.push({
      name: new TextDecoder().decode(new Uint8Array(view.buffer, at + ENTRY_BYTES, name)),
      method: view.getUint16(at + 10, true),
      packed: view.getUint32(at + 20, true),
      size: view.getUint32(at + 24, true),
      at: view.getUint32(at + 42, true),
    });
    at += ENTRY_BYTES + name + extra + comment;
  }
  return entries;
}

/** @param {Blob} file @param {Entry} entry */
async function textOf(file, { method, packed, size, at }) {
  if (method !== STORED && method !== DEFLATED) throw damaged();
  const local = await bytesOf(file, at, at + LOCAL_BYTES);
  const start = at + LOCAL_BYTES + local.getUint16(26, true) + local.getUint16(28, true);
  const data = file.slice(start, start + packed);
  const stream = method === STORED ? data.stream() : data.stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return textOfStream(stream, size);
}

/** The text of a stream, which has to have as many bytes as its archive says. @param {ReadableStream} stream @param {number} size */
async function textOfStream(stream, size) {
  const reader = stream.getReader(); // Safari has no `for await` over a stream
  const decoder = new TextDecoder();
  let [text, length] = ["", 0];
  try {
    for (;;) {
      const { done, value } = await reader.read(); // fails where the data cannot be unpacked
      if (done) break;
      length += value.length;
      if (length > size) break; // perhaps without an end
      text += decoder.decode(value, { stream: true });
    }
  } catch {
    throw damaged();
  }
  reader.cancel().catch(() => {}); // of what is left, if anything
  if (length !== size) throw damaged();
  return text + decoder.decode();
}

/** @param {Blob} file @param {number} from @param {number} to */
async function bytesOf(file, from, to) {
  const buffer = await file.slice(from, to).arrayBuffer();
  if (buffer.byteLength < to - from) throw damaged();
  return new DataView(buffer);
}

const damaged = () => new Error(`${t("The ZIP archive is damaged, or of a kind that is not read.")}`);
