// A worker with a Python like the engine's: imports a module that it is sent, and answers with what `code` gives.
import { startPython } from "/repo/app/boot.js";

self.onmessage = async ({ data: { assets, code } }) => {
  const { pyodide } = await startPython(assets, () => undefined, ["numpy"]);
  try {
    self.postMessage({ value: pyodide.runPython(code) });
  } catch (error) {
    self.postMessage({ error: String(error.message) });
  }
};
