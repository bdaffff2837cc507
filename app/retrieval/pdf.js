/** Reads the text of PDF files with pdf.js. A bundle of its own, which the page fetches with the first PDF. */
import { getDocument, GlobalWorkerOptions } from "pdfjs-dist/legacy/build/pdf.mjs";
import { blocksOf, linesOf } from "./lines.js";

/** @typedef {import("./split.js").Block} Block */

/**
 * @param {ArrayBuffer} data
 * @param {string} workerUrl of pdf.js's worker @returns {Promise<{ blocks: Block[], pages: number }>}
 */
export async function readPdf(data, workerUrl) {
  GlobalWorkerOptions.workerSrc = workerUrl;
  const task = getDocument({
    data: new Uint8Array(data),
    disableFontFace: true,
    useSystemFonts: false,
    verbosity: 0,
  });
  try {
    const pdf = await task.promise;
    /** @type {import("./lines.js").Line[]} */
    const lines = [];
    for (let number = 1; number <= pdf.numPages; number++) {
      const page = await pdf.getPage(number);
      const { items } = await page.getTextContent();
      lines.push(...linesOf(/** @type {import("./lines.js").Item[]} */ (items), number));
      page.cleanup();
    }
    return { blocks: blocksOf(lines), pages: pdf.numPages };
  } catch (/** @type {any} */ error) {
    if (error?.name === "PasswordException")
      throw new Error("It is protected with a password. Save it without one first.");
    throw new Error(`It is not a PDF file, or it is damaged (${error?.message ?? error}).`);
  } finally {
    await task.destroy();
  }
}
