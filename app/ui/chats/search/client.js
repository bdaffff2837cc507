/** The page's end of the search over all chats; a worker has the index. */
import { t } from "../../../language/phrase.js";
import { byId } from "../../dom.js";

export class Search {
  /** @type {Worker | null} */
  #worker = null;
  #number = 0;
  /** @type {Map<number, PromiseWithResolvers<string[]>>} */
  #waiting = new Map();

  /** @param {(progress: { done: number, total: number }) => void} onProgress while many chats are indexed */
  constructor(onProgress) {
    this.onProgress = onProgress;
  }

  /** The ids of the chats that have words with these beginnings. "" only prepares. @param {string} text */
  find(text) {
    const worker = (this.#worker ??= this.#start());
    const number = ++this.#number;
    const waiting = Promise.withResolvers();
    this.#waiting.set(number, waiting);
    worker.postMessage({ number, text });
    return waiting.promise;
  }

  #start() {
    const url = new URL(byId("chat-search").dataset.worker ?? "", document.baseURI);
    const worker = new Worker(url, { type: "module", name: "search" });
    worker.onmessage = ({ data }) => {
      if (data.progress) return this.onProgress(data.progress);
      const waiting = this.#waiting.get(data.number);
      this.#waiting.delete(data.number);
      if (data.error) waiting?.reject(new Error(data.error));
      else waiting?.resolve(data.ids);
    };
    worker.onerror = () => {
      this.#worker = null; // the next search starts another one
      for (const waiting of this.#waiting.values())
        waiting.reject(new Error(`${t("The search stopped. Search again.")}`));
      this.#waiting.clear();
    };
    return worker;
  }
}
