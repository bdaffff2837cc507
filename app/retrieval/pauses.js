/** Pauses in long work on the page's thread, in which the page takes input and draws. */

const WORK_MS = 30; // between two pauses

export class Pauses {
  #since = performance.now();

  /** Lets the page's other tasks run, if it is time. Timers would wait for a second in a hidden tab. */
  async due() {
    if (performance.now() - this.#since < WORK_MS) return;
    const { port1, port2 } = new MessageChannel();
    await new Promise((resolve) => {
      port1.onmessage = resolve;
      port2.postMessage(null);
    });
    port1.close();
    this.#since = performance.now();
  }
}
