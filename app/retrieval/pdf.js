/** Reads the text of PDF files with pdf.js. A bundle of its own, which the page fetches with the first PDF. */
import { getDocument, GlobalWorkerOptions, PDFWorker } from "pdfjs-dist/legacy/build/pdf.mjs";
import { t } from "../language/phrase.js";
import { blocksOf, linesOf } from "./lines.js";

/** @typedef {import("./split.js").Block} Block */

const LIMIT_MS = 30_000; // for a page: a damaged or hostile file may repeat a form without end

class TooSlow extends Error {
  message = String(
    t("A page of it takes longer than {time} s to read. Print it to a new PDF file and try that.", {
      time: LIMIT_MS / 1000,
    }),
  );
}

/** The value of a promise, if it comes in time. @template T @param {Promise<T>} promise @returns {Promise<T>} */
function inTime(promise) {
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new TooSlow()), LIMIT_MS)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * @param {ArrayBuffer} data
 * @param {string} workerUrl of pdf.js's worker @returns {Promise<{ blocks: Block[], pages: number }>}
 */
export async function readPdf(data, workerUrl) {
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
    const pdf = await inTime(task.promise);
    /** @type {import("./lines.js").Line[]} */
    const lines = [];
    for (let number = 1; number <= pdf.numPages; number++) {
      const page = await inTime(pdf.getPage(number));
      const { items } = await inTime(page.getTextContent());
      for (const line of linesOf(/** @type {import("./lines.js").Item[]} */ (items), number)) lines.push(line);
      page.cleanup();
    }
    return { blocks: blocksOf(lines), pages: pdf.numPages };
  } catch (/** @type {any} */ error) {
    if (error?.name === "PasswordException")
      throw new Error(`${t("It is protected with a password. Save it without one first.")}`);
    if (error instanceof TooSlow) throw error;
    const why = String(error?.message ?? error);
    throw new Error(`${t("It is not a PDF file, or it is damaged ({why}).", { why })}`);
  } finally {
    worker.destroy(); // task.destroy() alone would wait for a worker that is busy without end
    task.destroy().catch(() => undefined);
  }
}
