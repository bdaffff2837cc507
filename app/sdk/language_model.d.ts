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
  | { type: "audio"; value: LanguageModelAudio };

export interface LanguageModelMessage {
  role: "system" | "user" | "assistant";
  /** pictures and sounds: not of the assistant, and only of the types in `expectedInputs` */
  content: string | LanguageModelMessageContent[];
  /** the beginning of the answer; of the last message only */
  prefix?: boolean;
}

export interface LanguageModelTool {
  name: string;
  description: string;
  /** a JSON schema, which the arguments follow */
  inputSchema: object;
  /** gets the arguments as one object */
  execute(input: any): Promise<string> | string;
}

export interface LanguageModelCreateCoreOptions {
  topK?: number;
  temperature?: number;
  /** types besides "text": the model needs a projector for them, else NotSupportedError */
  expectedInputs?: { type: "text" | "image" | "audio"; languages?: string[] }[];
  expectedOutputs?: { type: "text"; languages?: string[] }[];
  tools?: LanguageModelTool[];
}

export interface CreateMonitor extends EventTarget {
  /** `loaded` is the part that has arrived, from 0 to 1 */
  ondownloadprogress: ((event: ProgressEvent) => void) | null;
}

export interface LanguageModelCreateOptions extends LanguageModelCreateCoreOptions {
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

export interface LanguageModelSession extends EventTarget {
  prompt(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<string>;
  promptStreaming(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): ReadableStream<string>;
  append(input: LanguageModelPrompt, options?: { signal?: AbortSignal }): Promise<void>;
  measureContextUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  clone(options?: { signal?: AbortSignal }): Promise<LanguageModelSession>;
  destroy(): void;
  readonly contextUsage: number;
  readonly contextWindow: number;
  readonly topK: number;
  readonly temperature: number;
  oncontextoverflow: ((event: Event) => void) | null;
}

export interface LanguageModelConstructor {
  create(options?: LanguageModelCreateOptions): Promise<LanguageModelSession>;
  availability(options?: LanguageModelCreateCoreOptions): Promise<Availability>;
  readonly prototype: LanguageModelSession;
}
