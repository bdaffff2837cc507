/** Loads Wisp's SDK from the address of the package's folder engine/; default: wisp/ beside the page. */
export declare const load: (base?: string | URL) => Promise<typeof import("./types/wisp.js")>;
/** Loads the Prompt API from there. */
export declare const loadPromptApi: (base?: string | URL) => Promise<typeof import("./types/sdk/prompt_api.js")>;
/** Defines the element <wisp-chat> from there. */
export declare const defineChat: (base?: string | URL) => Promise<unknown>;

export type { CallOptions, CreateOptions, LoadRequest, Model, Progress, Upstream, Wisp } from "./types/wisp.js";
export type { WispError } from "./types/sdk/error.js";
export type { LanguageModelConstructor, LanguageModelSession } from "./types/sdk/language_model.js";
export type * from "./types/sdk/types.d.ts";
