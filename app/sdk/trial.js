/** Workers of this page that try a grammar for a shared engine (app/answers/grammar_trial.js), which can start none. */

/** @param {{ url: string, port: MessagePort, control: MessagePort }} message see app/ports.js */
export function lendTrialWorker({ url, port, control }) {
  const worker = new Worker(url, { type: "module", name: "wisp grammar" });
  worker.postMessage({ port }, [port]);
  worker.onerror = (event) => (event.preventDefault(), control.postMessage("failed"));
  control.onmessage = () => (worker.terminate(), control.close());
}
