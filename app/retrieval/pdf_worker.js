/** The worker of pdf.js, with a limit on its memory. */
import "./pdf_memory.js"; // before pdf.js
// @ts-expect-error: the package has no types of its worker
export { WorkerMessageHandler } from "pdfjs-dist/legacy/build/pdf.worker.mjs";
