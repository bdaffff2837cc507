/** The options that sessions of the Prompt API are created with (prompt_api.js): what is checked, and what it means. */
import { checkTools } from "./prompt_tools.js";

/**
 * @typedef {import("./language_model.d.ts").LanguageModelCreateCoreOptions} CoreOptions
 * @typedef {import("./language_model.d.ts").LanguageModelSamplingMode} SamplingMode
 * @typedef {"image" | "audio"} Kind
 */
const KINDS = /** @type {const} */ (["image", "audio"]);
export const TYPES = ["text", ...KINDS, "tool-call", "tool-response"];
const OUTPUTS = ["text", "tool-call"];
const LANGUAGES = new Intl.DisplayNames("en", { type: "language", fallback: "none" });

/** What sessions use that name nothing, and the limits. */
export const PARAMS = { defaultTopK: 40, maxTopK: 1024, defaultTemperature: 1, maxTemperature: 2 };
/** @type {Record<SamplingMode, { temperature: number, topK: number }>} */
const MODES = {
  "most-predictable": { temperature: 0, topK: 1 },
  predictable: { temperature: 0.5, topK: 20 },
  "slightly-predictable": { temperature: 0.75, topK: 30 },
  balanced: { temperature: PARAMS.defaultTemperature, topK: PARAMS.defaultTopK },
  "slightly-creative": { temperature: 1.125, topK: 70 },
  creative: { temperature: 1.25, topK: 100 },
  "most-creative": { temperature: 1.5, topK: 400 },
};

/**
 * Throws for options that are wrong, or that no model here has.
 * @param {CoreOptions} options
 */
export function checkOptions(options) {
  const { expectedInputs = [], expectedOutputs = [], tools, samplingMode, temperature, topK } = options;
  for (const { type, languages = [] } of [...expectedInputs, ...expectedOutputs]) {
    if (!TYPES.includes(type)) throw new TypeError(`There is no type ${type}.`);
    Intl.getCanonicalLocales(languages); // throws RangeError
  }
  if (samplingMode !== undefined && !Object.hasOwn(MODES, samplingMode))
    throw new TypeError(`samplingMode must be one of ${Object.keys(MODES).join(", ")}.`);
  if (samplingMode !== undefined && (temperature ?? topK) !== undefined)
    throw new TypeError("Give samplingMode, or temperature and topK.");
  checkTools(tools, callsAreReturned(options));
  const unsupported = expectedOutputs.find(({ type }) => !OUTPUTS.includes(type));
  if (unsupported) throw new DOMException(`Content of type ${unsupported.type} is not supported.`, "NotSupportedError");
  const tags = [...expectedInputs, ...expectedOutputs].flatMap(({ languages = [] }) => languages);
  const unknown = tags.find((tag) => !LANGUAGES.of(new Intl.Locale(tag).language));
  if (unknown) throw new DOMException(`There is no language ${unknown}.`, "NotSupportedError");
}

/** The mode of a session; none if it has numbers instead. @param {CoreOptions} options @returns {SamplingMode | null} */
export function modeOf({ samplingMode, temperature, topK }) {
  return samplingMode ?? ((temperature ?? topK) === undefined ? "balanced" : null);
}

/** Whether the page runs the tools: answers have the calls, and nothing is executed. @param {CoreOptions} options */
export function callsAreReturned({ expectedOutputs = [] }) {
  return expectedOutputs.some(({ type }) => type === "tool-call");
}

/** The types that messages of a session may have. @param {CoreOptions} options @returns {Set<string>} */
export function inputsOf({ expectedInputs = [] }) {
  return new Set(["text", ...expectedInputs.map(({ type }) => type)]);
}

/** The kinds of media that a session expects. @param {CoreOptions} options @returns {Kind[]} */
export function kindsOf({ expectedInputs = [] }) {
  return KINDS.filter((kind) => expectedInputs.some(({ type }) => type === kind));
}

/** Whether temperature and topK are possible; those that are too large are taken as the limit. @param {CoreOptions} options */
export function samplingIsPossible({ temperature = 0, topK = 1 }) {
  return temperature >= 0 && topK >= 1; // false for NaN
}

/** The sampling of a session. @param {CoreOptions} options @returns {{ temperature: number, topK: number }} */
export function samplingOf(options) {
  if (!samplingIsPossible(options)) throw new RangeError("temperature must be at least 0, topK at least 1.");
  const { temperature, topK } = options.samplingMode ? MODES[options.samplingMode] : options;
  return {
    temperature: Math.min(Math.fround(temperature ?? PARAMS.defaultTemperature), PARAMS.maxTemperature),
    topK: Math.floor(Math.min(topK ?? PARAMS.defaultTopK, PARAMS.maxTopK)),
  };
}
