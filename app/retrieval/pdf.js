/** Reads the text of PDF files with pdf.js. A bundle of its own, which the page fetches with the first PDF. */
import { getDocument, GlobalWorkerOptions, PDFWorker } from "pdfjs-dist/legacy/build/pdf.mjs";
import { t } from "../language/phrase.js";
import { withSignal } from "../sdk/with_signal.js";
import { blocksOf, linesOf } from "./lines.js";

/** @typedef {import("./split.js").Block} Block */

const LIMIT_MS = 30_000; // for a page: a damaged or hostile file may repeat a form without end
const LATE_MS = 1000; // a timer that is later than that: the page stood still, such as a tab in a phone's background
const MINUTES = 10; // for a file: others wait for it
const MOST_PAGES = 20_000; // the same page may be listed a million times
const MOST_ITEMS = 500_000; // pieces of text of a page
const CLEANUP = 50; // pages
const MOST_TEXT = 64 << 20; // characters of a file, as of a text file

/** An error for the user. */
class Refused extends Error {}

/** @param {number} limitMs */
const tooSlow = (limitMs) =>
  new Refused(
    `${t("A page of it takes longer than {time} s to read. Print it to a new PDF file and try that.", {
      time: limitMs / 1000,
    })}`,
  );
const tooLarge = () =>
  new Refused(
    `${t("It unpacks to more than can be read here. Print fewer of its pages to a new PDF file and try that.")}`,
  );
const noPages = () => new Refused(`${t("Its list of pages is damaged. Print it to a new PDF file and try that.")}`);
const tooLong = () => new Refused(`${t("It is too long to be read here. Split it into smaller files.")}`);

/**
 * The value of a promise, if it comes in time. While the page stood still, pdf.js may have, too, and what it has sent waits:
 * it gets that time again, once.
 * @template T @param {Promise<T>} promise @param {number} limitMs @returns {Promise<T>}
 */
function inTime(promise, limitMs) {
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const due = performance.now() + limitMs;
  const late = new Promise((_, reject) => {
    const refuse = () => reject(tooSlow(limitMs));
    timer = setTimeout(() => {
      const missed = performance.now() - due;
      if (missed < LATE_MS) refuse();
      else timer = setTimeout(refuse, Math.min(missed, limitMs));
    }, limitMs);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * @param {ArrayBuffer} data @param {string} workerUrl of pdf.js's worker
 * @param {AbortSignal} [signal] ends the worker @param {number} [limitMs] for a page
 * @returns {Promise<{ blocks: Block[], pages: number }>}
 */
export async function readPdf(data, workerUrl, signal, limitMs = LIMIT_MS) {
  signal?.throwIfAborted();
  GlobalWorkerOptions.workerSrc = workerUrl;
  const worker = new PDFWorker({ verbosity: 0 });
  const task = getDocument({
    worker,
    data: new Uint8Array(data),
    disableFontFace: true,
    useSystemFonts: false,
    verbosity: 0,
  });
  try {
    await withSignal(inTime(worker.promise, limitMs), signal); // it has its port then
    const unpacked = new Promise((_, reject) =>
      worker.port.addEventListener("message", ({ data }) => data.tooLarge && reject(tooLarge())),
    );
    return await withSignal(Promise.race([blocksOfPages(task, limitMs), unpacked]), signal);
  } catch (/** @type {any} */ error) {
    signal?.throwIfAborted();
    if (error?.name === "PasswordException")
      throw new Error(`${t("It is protected with a password. Save it without one first.")}`);
    if (error instanceof Refused) throw error;
    const why = String(error?.message ?? error);
    throw new Error(`${t("It is not a PDF file, or it is damaged ({why}).", { why })}`);
  } finally {
    worker.destroy(); // task.destroy() alone would wait for a worker that is busy without end
    task.destroy().catch(() => undefined);
  }
}

/**
 * @param {import("pdfjs-dist").PDFDocumentLoadingTask} task @param {number} limitMs for a page
 * @returns {Promise<{ blocks: Block[], pages: number }>}
 */
async function blocksOfPages(task, limitMs) {
  const pdf = await inTime(task.promise, limitMs);
  if (pdf.numPages > MOST_PAGES) throw tooLong();
  if (!(pdf.numPages > 0)) throw new Error(`${pdf.numPages} pages`);
  /** @type {import("./lines.js").Line[]} */
  const lines = [];
  let length = 0;
  let spent = 0; // ms
  for (let number = 1; number <= pdf.numPages; number++) {
    if (spent > MINUTES * 60_000) throw tooLong();
    const begun = performance.now();
    const page = await inTime(pdf.getPage(number), limitMs);
    const items = await inTime(itemsOf(page), limitMs);
    // What pdf.js puts in place of a first page that it cannot reach, as in a circular page tree.
    if (!page.ref && !items.length) throw noPages();
    for (const line of linesOf(items, number)) {
      length += line.text.length;
      lines.push(line);
    }
    if (length > MOST_TEXT) throw tooLong();
    page.cleanup();
    if (number % CLEANUP === 0) await inTime(pdf.cleanup(), limitMs); // else the fonts of all pages stay in memory
    spent += Math.min(performance.now() - begun, limitMs); // more: the page stood still
  }
  return { blocks: blocksOf(lines), pages: pdf.numPages };
}

/** The pieces of text of a page, while they are few enough to be held. @param {import("pdfjs-dist").PDFPageProxy} page */
async function itemsOf(page) {
  /** @type {import("./lines.js").Item[]} */
  const all = [];
  let length = 0;
  const reader = page.streamTextContent().getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    for (const item of next.value.items) {
      all.push(item);
      length += item.str?.length ?? 0;
    }
    if (all.length > MOST_ITEMS || length > MOST_TEXT) throw tooLarge();
  }
  return all;
}
