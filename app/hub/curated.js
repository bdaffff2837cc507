/**
 * Good small models, shown without any request: their repositories on the Hugging Face Hub. Which file of one is the best
 * is decided on this device (fit.js), when the user opens it.
 *
 * @typedef {object} Curated
 * @property {string} name
 * @property {string} repository OWNER/NAME
 * @property {number} parameters
 * @property {string} license
 * @property {import("../language/phrase.js").Phrase} kind
 * @property {import("../language/phrase.js").Phrase} about what it is good at
 */
import { t } from "../language/phrase.js";

const APACHE = "Apache-2.0";
export const CHAT = t("Chat");

/** @type {Curated[]} the smallest first in each kind */
export const CURATED = [
  {
    name: "SmolLM2 360M Instruct",
    repository: "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF",
    parameters: 360e6,
    license: APACHE,
    kind: CHAT,
    about: t("The smallest here: short English answers on any device."),
  },
  {
    name: "Qwen2.5 0.5B Instruct",
    repository: "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
    parameters: 494e6,
    license: APACHE,
    kind: CHAT,
    about: t("Small, in many languages."),
  },
  {
    name: "Gemma 3 1B",
    repository: "ggml-org/gemma-3-1b-it-GGUF",
    parameters: 1e9,
    license: "Gemma",
    kind: CHAT,
    about: t("Google's small model for text: fluent, with little memory for context."),
  },
  {
    name: "LFM2 1.2B",
    repository: "LiquidAI/LFM2-1.2B-GGUF",
    parameters: 1.17e9,
    license: "LFM Open License 1.0",
    kind: CHAT,
    about: t("Made for phones and laptops: mostly short convolutions, so long contexts cost little."),
  },
  {
    name: "Llama 3.2 1B Instruct",
    repository: "bartowski/Llama-3.2-1B-Instruct-GGUF",
    parameters: 1.24e9,
    license: "Llama 3.2 Community",
    kind: CHAT,
    about: t("Meta's small model: summaries and rewriting."),
  },
  {
    name: "OLMo 2 1B Instruct",
    repository: "allenai/OLMo-2-0425-1B-Instruct-GGUF",
    parameters: 1.48e9,
    license: APACHE,
    kind: CHAT,
    about: t("Fully open: its training data and code are published, too."),
  },
  {
    name: "Granite 3.3 2B Instruct",
    repository: "ibm-granite/granite-3.3-2b-instruct-GGUF",
    parameters: 2.53e9,
    license: APACHE,
    kind: CHAT,
    about: t("IBM's model for work: summaries, extraction, tool calls."),
  },
  {
    name: "Qwen3 0.6B",
    repository: "Qwen/Qwen3-0.6B-GGUF",
    parameters: 0.6e9,
    license: APACHE,
    kind: t("Reasoning"),
    about: t("Thinks before it answers, if it is asked to; many languages."),
  },
  {
    name: "DeepSeek R1 Distill Qwen 1.5B",
    repository: "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF",
    parameters: 1.78e9,
    license: "MIT",
    kind: t("Reasoning"),
    about: t("Always thinks at length: mathematics and puzzles."),
  },
  {
    name: "SmolLM3 3B",
    repository: "ggml-org/SmolLM3-3B-GGUF",
    parameters: 3.08e9,
    license: APACHE,
    kind: t("Reasoning"),
    about: t("Thinks on request, in six languages, with long contexts."),
  },
  {
    name: "Qwen3 4B",
    repository: "Qwen/Qwen3-4B-GGUF",
    parameters: 4.02e9,
    license: APACHE,
    kind: t("Reasoning"),
    about: t("Strong for its size: reasoning, tools, many languages."),
  },
  {
    name: "Qwen2.5 Coder 1.5B Instruct",
    repository: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    parameters: 1.54e9,
    license: APACHE,
    kind: t("Code"),
    about: t("Writes and explains short programs."),
  },
  {
    name: "SmolVLM 500M Instruct",
    repository: "ggml-org/SmolVLM-500M-Instruct-GGUF",
    parameters: 500e6,
    license: APACHE,
    kind: t("Vision"),
    about: t("Says in English what a picture shows, on any device."),
  },
  {
    name: "Qwen3-VL 2B Instruct",
    repository: "Qwen/Qwen3-VL-2B-Instruct-GGUF",
    parameters: 2.1e9,
    license: APACHE,
    kind: t("Vision"),
    about: t("Reads photos, pages and screens, in many languages."),
  },
  {
    name: "Nomic Embed Text 1.5",
    repository: "nomic-ai/nomic-embed-text-v1.5-GGUF",
    parameters: 137e6,
    license: APACHE,
    kind: t("Embedding"),
    about: t("Finds passages of your documents by meaning, in English."),
  },
  {
    name: "Qwen3 Embedding 0.6B",
    repository: "Qwen/Qwen3-Embedding-0.6B-GGUF",
    parameters: 0.6e9,
    license: APACHE,
    kind: t("Embedding"),
    about: t("Finds passages of your documents by meaning, in many languages."),
  },
];

/** Bytes of a model of so many parameters at about 4.8 bits a weight, as Q4_K_M has. @param {number} parameters */
export const bytesAt4Bits = (parameters) => (4.8 / 8) * parameters;
