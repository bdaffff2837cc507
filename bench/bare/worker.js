/** Starts Python as Pyodide's documentation has it, and says when it runs code. */
self.onmessage = async ({ data: indexURL }) => {
  const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL });
  self.postMessage(pyodide.runPython("1 + 1"));
};
