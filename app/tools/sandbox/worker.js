/**
 * The sandbox's worker: runs Python or JavaScript that a model wrote. It is made by code.html, in a frame of an opaque
 * origin, and talks to the page (sandbox.js) over one port, which that code cannot reach.
 */
import { startJavaScript } from "./javascript.js";
import { limitedFiles, limitedOutput, limitMemory } from "./limits.js";
import { startPython } from "./python.js";

/**
 * @typedef {{ name: string, data: Uint8Array<ArrayBuffer> }} File
 * @typedef {{ language: "python" | "javascript", parts: Record<string, ArrayBuffer>, wheels: string[], resolves: boolean, memory: number, output: number }} Begin
 * @typedef {{ data: ArrayBuffer | null, why: string, type?: string, status?: number }} Wheel its content, or why the page
 *   could not load it; of an index, also the MIME type and the status, which is 0 without a network
 * @typedef {{ code: string, files: File[], wheels: File[], importable: string }} Run `wheels`: to be installed; `importable`:
 *   which packages there are, in words, for errors of imports
 * @typedef {{ failed: boolean, outOfMemory?: boolean, files: { name: string, size: number, read: () => Uint8Array }[] }} Ran
 * @typedef {(message: any, transfer: Transferable[]) => void} Send
 * @typedef {{ installed: (wheel: string) => void, begins: () => void }} Tell what is told of a run: each wheel that is
 *   installed; that everything is loaded
 * @typedef {(run: Run, output: { write: (text: string) => boolean }, tell: Tell) => Promise<Ran>} Runner runs code
 */

self.onmessage = async ({ data, ports: [port] }) => {
  const { language, parts, wheels: names, resolves, memory, output } = /** @type {Begin} */ (data);
  /** @type {Send} */
  const send = MessagePort.prototype.postMessage.bind(port); // code that replaces the method does not get the port
  limitMemory(memory);
  self.onmessage = null;
  // What could multiply workers or flood those who listen. The policy and the opaque origin deny everything else.
  for (const name of ["Worker", "SharedWorker", "BroadcastChannel", "postMessage"])
    delete (/** @type {any} */ (self)[name]);
  const wheels = new Handed(names, (name) => send({ wheel: name }, []));
  try {
    const run = language === "python" ? await startPython(parts, wheels, resolves) : startJavaScript();
    port.onmessage = ({ data }) =>
      data.wheel === undefined ? void answer(run, data, send, output) : wheels.take(data.wheel, data);
    send({ ready: true }, []);
  } catch (error) {
    send({ broken: String(error) }, []);
  }
};

/** Wheels that the page hands in when code imports them. */
class Handed {
  /** @type {Map<string, PromiseWithResolvers<Wheel>>} asked for, and not here yet */
  #waiting = new Map();

  /** @param {string[]} names that the page has @param {(name: string) => void} ask the page */
  constructor(names, ask) {
    this.names = names;
    this.ask = ask;
  }

  /** A wheel's content, or none. All who ask meanwhile get the same. @param {string} name @returns {Promise<Wheel>} */
  get(name) {
    const asked = this.#waiting.get(name);
    if (asked) return asked.promise;
    const waiting = /** @type {PromiseWithResolvers<Wheel>} */ (Promise.withResolvers());
    this.#waiting.set(name, waiting);
    this.ask(name);
    return waiting.promise;
  }

  /** @param {string} name @param {Wheel} handed */
  take(name, handed) {
    this.#waiting.get(name)?.resolve(handed);
    this.#waiting.delete(name);
  }
}

/** @param {Runner} run @param {Run} asked @param {Send} send @param {number} most */
async function answer(run, asked, send, most) {
  const output = limitedOutput((text) => send({ output: text }, []), most);
  const tell = {
    installed: (/** @type {string} */ wheel) => send({ installed: wheel }, []),
    begins: () => send({ begins: true }, []),
  };
  try {
    const { failed, outOfMemory, files } = await run(asked, output, tell);
    output.flush();
    const { accepted, dropped } = limitedFiles(files);
    const taken = accepted.map(({ name, read }) => ({ name, data: read().slice() }));
    const full = !output.write("");
    const done = { failed, outOfMemory: outOfMemory === true, full, files: taken, dropped };
    send(
      { done },
      taken.map(({ data }) => data.buffer),
    );
  } catch (error) {
    output.flush();
    send({ broken: String(error) }, []);
  }
}
