// A worker, shared or a page's own, that decodes pictures as the engine's does: {bytes, type} -> {width, height, pixels}.
import { decode } from "/repo/py_engine/media/pictures.js";

/** @param {{ postMessage: (message: any) => void }} port @param {{ bytes: Uint8Array, type: string }} data */
async function answer(port, { bytes, type }) {
  try {
    port.postMessage(await decode(bytes, type));
  } catch (error) {
    port.postMessage({ error: String(error) });
  }
}

self.onmessage = ({ data }) => answer(self, data);
self.onconnect = ({ ports: [port] }) => (port.onmessage = ({ data }) => answer(port, data));
