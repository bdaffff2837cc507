import { absolute } from "./address.js";

/**
 * @typedef {string | Blob} AdapterFile
 * @typedef {{ model: AdapterFile, scale?: number, layers?: [number, number] }} Adapter
 */

/**
 * The fields of a load message for LoRA adapters and control vectors: their files, and how each is loaded.
 * @param {AdapterFile | Adapter | (AdapterFile | Adapter)[] | null | undefined} lora @returns {Record<string, any>}
 */
export function adapterFields(lora) {
  if (lora === undefined || lora === null) return {};
  const isFile = (/** @type {any} */ one) => typeof one === "string" || one instanceof Blob;
  const given = [lora].flat().map((one) => /** @type {any} */ (isFile(one) ? { model: one } : { ...Object(one) }));
  return { adapters: given.map(({ model }) => absolute(model)), lora: given.map(({ model: _, ...rest }) => rest) };
}
