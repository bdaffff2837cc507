/** The Prompt API's types: https://webmachinelearning.github.io/prompt-api/ */

export type Availability = "unavailable" | "downloadable" | "downloading" | "available";
export type LanguageModelPrompt = string | LanguageModelMessage[];

/** A picture: as it is at the time of the call. Elements that are still loading are waited for. */
export type LanguageModelImage = ImageBitmapSource | BufferSource;
/** A sound: a file, its bytes, or what an audio context has decoded. */
export type LanguageModelAudio = AudioBuffer | BufferSource | Blob;

export type LanguageModelMessageContent =
  | { type: "text"; value: string }
  | { type: "image"; value: LanguageModelImage }
  | { type: "audio"; value: LanguageModelAudio }
  | { type: "tool-call"; value: LanguageModelToolCall }
  | { type: "tool-response"; value: LanguageModelToolSuccess | LanguageModelToolError };

export type LanguageModelMessageType = LanguageModelMessageContent["type"];
/** How varied answers are: samplings from the most likely token on, in place of `temperature` and `topK`. */
export type LanguageModelSamplingMode =
  | "most-predictable"
  | "predictable"
  | "slightly-predictable"
  | "balanced"
  | "slightly-creative"
  | "creative"
  | "most-creative";

export interface LanguageModelToolCall {
  callID: string;
  name: string;
  /** follows the tool's inputSchema */
  arguments: any;
}

export interface LanguageModelToolSuccess {
  callID: string;
  name: string;
  /** texts, or values that are written as JSON */
  result: { type: "text" | "object"; value: any }[];
}

export interface LanguageModelToolError {
  callID: string;
  name: string;
  errorMessage: string;
}

export interface LanguageModelMessage {
  role: "system" | "user" | "assistant";
  /** besides text only of the types in `expectedInputs`; tool calls are the assistant's, all others the user's */
  content: string | LanguageModelMessageContent[];
  /** the beginning of the answer; of the last message only */
  prefix?: boolean;
}

export interface LanguageModelTool {
  name: string;
  description: string;
  /** a JSON schema of the type "object", which the arguments follow */
  inputSchema: object;
  /** gets the arguments as one object; not needed where `expectedOutputs` has "tool-call" */
  execute?(input: any): Promise<string> | string;
}

export interface LanguageModelCreateCoreOptions {
  topK?: number;
  temperature?: number;
  samplingMode?: LanguageModelSamplingMode;
  /** types besides "text"; for "image" and "audio" the model needs a projector, else NotSupportedError */
  expectedInputs?: { type: LanguageModelMessageType; languages?: string[] }[];
  /** "tool-call": answers have the calls of tools, which the page runs */
  expectedOutputs?: { type: LanguageModelMessageType; languages?: string[] }[];
  tools?: LanguageModelTool[];
}

export interface CreateMonitor extends EventTarget {
  /** `loaded` is the part that has arrived, from 0 to 1 */
  ondownloadprogress: ((event: ProgressEvent) => void) | null;
}

export interface LanguageModelCreateOptions extends LanguageModelCreateCoreOptions {
  /** ends the session, too */
  signal?: AbortSignal;
  monitor?: (monitor: CreateMonitor) => void;
  initialPrompts?: LanguageModelMessage[];
}

export interface LanguageModelPromptOptions {
  /** a JSON schema, or a RegExp that the whole answer matches */
  responseConstraint?: object;
  /** true: the model is not told of the constraint */
  omitResponseConstraintInput?: boolean;
  signal?: AbortSignal;
}

/** An answer of a session whose page runs the tools: a text, or, where it has calls, its parts. */
export type LanguageModelAnswer = string | LanguageModelMessageContent[];

/** `Answer`: `LanguageModelAnswer` where `expectedOutputs` has "tool-call" */
export interface LanguageModelSession<Answer extends LanguageModelAnswer = string> extends EventTarget {
  prompt(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<Answer>;
  /** texts, and last the tool calls */
  promptStreaming(
    input: LanguageModelPrompt,
    options?: LanguageModelPromptOptions,
  ): ReadableStream<Answer extends string ? string : string | LanguageModelMessageContent>;
  append(input: LanguageModelPrompt, options?: { signal?: AbortSignal }): Promise<void>;
  measureContextUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  clone(options?: { signal?: AbortSignal }): Promise<LanguageModelSession<Answer>>;
  destroy(): void;
  readonly contextUsage: number;
  readonly contextWindow: number;
  readonly topK: number;
  readonly temperature: number;
  /** null where temperature or topK was given */
  readonly samplingMode: LanguageModelSamplingMode | null;
  oncontextoverflow: ((event: Event) => void) | null;
  /** @deprecated now measureContextUsage() */
  measureInputUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  /** @deprecated now contextUsage */
  readonly inputUsage: number;
  /** @deprecated now contextWindow */
  readonly inputQuota: number;
  /** @deprecated now oncontextoverflow */
  onquotaoverflow: ((event: Event) => void) | null;
}

export interface LanguageModelConstructor {
  create(
    options: LanguageModelCreateOptions & { expectedOutputs: [{ type: "tool-call" }, ...unknown[]] },
  ): Promise<LanguageModelSession<LanguageModelAnswer>>;
  create<Answer extends LanguageModelAnswer = string>(
    options?: LanguageModelCreateOptions,
  ): Promise<LanguageModelSession<Answer>>;
  availability(options?: LanguageModelCreateCoreOptions): Promise<Availability>;
  params(): Promise<{ defaultTopK: number; maxTopK: number; defaultTemperature: number; maxTemperature: number }>;
  readonly prototype: LanguageModelSession;
}
