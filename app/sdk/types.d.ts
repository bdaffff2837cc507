/** Requests of the SDK: OpenAI's, with llama.cpp's extensions. */

export type {
  Divergence,
  LastRequest,
  MonitorHandle,
  Perplexity,
  Pools,
  QualityFigures,
  QualityOptions,
  Question,
  Sample,
  Score,
  Stats,
} from "./figures.d.ts";

import type {
  AssistantMessage,
  ChatCompletion,
  ChatCompletionChunk,
  Completion,
  Embeddings,
  ModelList,
  Ranking,
  TextRanking,
  TokenUsage,
} from "./answers.d.ts";
import type { CachedModel, Inspection } from "./model_types.d.ts";

export type * from "./answers.d.ts";
export type * from "./mcp_types.d.ts";
export type * from "./model_types.d.ts";

/** A JSON schema of draft 2020-12; a keyword that cannot be enforced exactly is rejected with an error that names it. */
export type Schema = boolean | Record<string, any>;

export type ResponseFormat =
  | { type: "text" }
  | { type: "json_object" }
  | { type: "json_schema"; json_schema: { name?: string; schema: Schema; strict?: boolean } }
  | { type: "regex"; pattern: string }
  | { type: "grammar"; grammar: string }
  | StructuralTag;

/** XGrammar's tree, or vLLM's older list of JSON schemas between texts. */
export type StructuralTag =
  | { type: "structural_tag"; format: Record<string, any> }
  | {
      type: "structural_tag";
      structures: { begin: string; schema: Schema; end: string }[];
      triggers: string[];
    };

/** What an answer's form may be; at most one of them. */
export interface Form {
  response_format?: ResponseFormat | null;
  /** GBNF, as llama.cpp has it */
  grammar?: string | null;
  /** the whole answer matches it */
  regex?: string | null;
  json_schema?: Schema | null;
  /** vLLM's; exactly one */
  structured_outputs?: StructuredOutputs | null;
  /** vLLM's older names: a schema, or its text */
  guided_json?: Schema | string | null;
  guided_regex?: string | null;
  guided_choice?: string[] | null;
  guided_grammar?: string | null;
  /** a structural tag, or its text */
  structural_tag?: StructuralTag | string | null;
}

export interface StructuredOutputs {
  /** a schema, or its text */
  json?: Schema | string | null;
  regex?: string | null;
  /** the answer is one of them */
  choice?: string[] | null;
  grammar?: string | null;
  /** or its text */
  structural_tag?: StructuralTag | string | null;
  json_object?: boolean | null;
}

/** Sampler parameters; docs/parameters.md has their ranges and defaults. */
export interface Sampling {
  // <sampling>
  temperature?: number | null;
  dynatemp_range?: number | null;
  dynatemp_exponent?: number | null;
  top_n_sigma?: number | null;
  top_k?: number | null;
  top_p?: number | null;
  min_p?: number | null;
  typical_p?: number | null;
  seed?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  repeat_penalty?: number | null;
  repeat_last_n?: number | null;
  dry_multiplier?: number | null;
  dry_base?: number | null;
  dry_allowed_length?: number | null;
  dry_penalty_last_n?: number | null;
  xtc_probability?: number | null;
  xtc_threshold?: number | null;
  diffusion_steps?: number | null;
  diffusion_eps?: number | null;
  diffusion_block_length?: number | null;
  diffusion_algorithm?: number | null;
  diffusion_alg_temp?: number | null;
  // </sampling>
  dry_sequence_breakers?: string[] | null;
  /** token id or text -> -100 (banned) to 100, or false (banned); or pairs of these */
  logit_bias?: Record<string, number | false> | [number | string, number | false][] | null;
}

/** The scale of an adapter; `id`: its place in `load({ lora })`. */
export interface AdapterScale {
  id: number;
  scale: number;
}

interface Common extends Form, Sampling {
  /** a loaded model, or an id of the catalog, which is loaded on demand; default: the default one */
  model?: string;
  max_tokens?: number | null;
  /** llama.cpp's: as `max_tokens`, but -1 is no limit */
  n_predict?: number | null;
  /** llama.cpp's: the samplers that are on; their order is always the same */
  samplers?: string[] | null;
  /** up to four */
  stop?: string | string[] | null;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  /** answers, one after the other, over one computation of the prompt */
  n?: number | null;
  /** goes on to the limit */
  ignore_eos?: boolean | null;
  /** false: computes the prompt anew */
  cache_prompt?: boolean | null;
  /** "in_memory": what is computed for the request is not stored beyond this visit */
  prompt_cache_retention?: "24h" | "in_memory" | "in-memory" | null;
  /** "auto": drops the oldest turns, and later the oldest text, instead of refusing or ending */
  truncation?: "auto" | "disabled" | null;
  /** as `logprobs` with so many alternatives */
  n_probs?: number | null;
  /** LoRA adapters and control vectors by their place in `load({ lora })`; scale 0 for those that are left out */
  lora?: AdapterScale[] | null;
  signal?: AbortSignal | null;
  [other: string]: any;
}

export interface Tool {
  type: "function";
  function: { name: string; description?: string; parameters?: Schema; strict?: boolean | null };
}

export interface ChatRequest extends Common {
  messages: Record<string, any>[];
  max_completion_tokens?: number | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  tools?: Tool[] | null;
  tool_choice?:
    "auto" | "none" | "required" | { type: "function"; function: { name: string } } | Record<string, any> | null;
  parallel_tool_calls?: boolean | null;
  reasoning_effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max" | null;
  /** "none" leaves the thinking in `content`; else it comes as `reasoning_content` */
  reasoning_format?: "auto" | "deepseek" | "none" | null;
  /** continue the last message, an answer of the assistant, instead of beginning a new one */
  continue_final_message?: boolean | null;
  /** vLLM's: must be the opposite of `continue_final_message` */
  add_generation_prompt?: boolean | null;
  /** variables of the model's chat template */
  chat_template_kwargs?: Record<string, any> | null;
}

export interface CompletionRequest extends Common {
  /** texts or token ids, one or several */
  prompt: string | string[] | number[] | number[][];
  logprobs?: number | null;
  echo?: boolean | null;
}

export interface ResponsesRequest {
  // <responses>
  temperature?: number | null;
  top_k?: number | null;
  top_p?: number | null;
  min_p?: number | null;
  seed?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  // </responses>
  model?: string;
  input: string | Record<string, any>[];
  instructions?: string | null;
  max_output_tokens?: number | null;
  tools?:
    | (
        | { type: "function"; name: string; description?: string; parameters?: Schema; strict?: boolean | null }
        | McpServerTool
      )[]
    | null;
  tool_choice?: ChatRequest["tool_choice"];
  parallel_tool_calls?: boolean | null;
  text?: {
    format?:
      { type: "text" | "json_object" } | { type: "json_schema"; name?: string; schema: Schema; strict?: boolean };
  };
  reasoning?: { effort?: ChatRequest["reasoning_effort"] } | null;
  include?: string[] | null;
  top_logprobs?: number | null;
  truncation?: "auto" | "disabled" | null;
  lora?: AdapterScale[] | null;
  stream?: boolean | null;
  [other: string]: any;
}

/** The tools of an MCP server, which the page calls. */
export interface McpServerTool {
  type: "mcp";
  server_label: string;
  /** default: that of the server with this label of `serve --api --mcp` */
  server_url?: string;
  /** a token */
  authorization?: string;
  headers?: Record<string, string>;
  allowed_tools?: string[] | { tool_names: string[] } | null;
  /** default: "always", by an `mcp_approval_request` */
  require_approval?:
    "always" | "never" | { always?: { tool_names: string[] }; never?: { tool_names: string[] } } | null;
  server_description?: string;
}

export interface EmbeddingsRequest {
  model?: string;
  /** texts or token ids, one or several */
  input: string | string[] | number[] | number[][];
  /** of each vector: so many of its first numbers */
  dimensions?: number | null;
  encoding_format?: "float" | "base64" | null;
  /** The norm by which each embedding is scaled, llama.cpp's: -1 none, 0 the largest value becomes 32,760, 2 (default) or any p: the p-norm becomes 1 */
  embd_normalize?: number | null;
  user?: string;
  signal?: AbortSignal | null;
}

interface RankedTexts {
  model?: string;
  query: string;
  /** default: all */
  top_n?: number | null;
  /** The answer has the documents, too. */
  return_documents?: boolean;
  /** The name of `return_documents` beside `texts`. */
  return_text?: boolean;
  /** Documents that are too long are shortened; else they are an error. */
  truncate?: boolean | null;
  /** false: the sigmoids of the scores, from 0 to 1 */
  raw_scores?: boolean | null;
  user?: string;
  signal?: AbortSignal | null;
}

export interface RerankRequest extends RankedTexts {
  documents: (string | { text: string })[];
}

/** A ranking in the form of Text Embeddings Inference. */
export interface TextRerankRequest extends RankedTexts {
  texts: (string | { text: string })[];
}

export interface TokenizeRequest {
  model?: string;
  content: string | (string | number)[];
  /** add the tokens that the model expects around a text, such as BOS; default: false */
  add_special?: boolean | null;
  /** read control tokens in the text as such; default: true */
  parse_special?: boolean | null;
  /** resolve to {id, piece} for each token, the piece as text or, where it is no UTF-8, as bytes */
  with_pieces?: boolean | null;
}

/** A request to write down what is said in a clip. */
export interface TranslationRequest {
  model?: string;
  /** the clip: WAV, MP3, Ogg, Opus, FLAC, AAC or WebM */
  file: Blob | ArrayBuffer | ArrayBufferView;
  /** the instruction, in place of the usual one */
  prompt?: string | null;
  /** "text" resolves to a string; default: "json" */
  response_format?: "json" | "text" | "verbose_json" | null;
  /** default: 0 */
  temperature?: number | null;
  max_tokens?: number | null;
  seed?: number | null;
  /** events `transcript.text.delta` and `transcript.text.done` */
  stream?: boolean | null;
  signal?: AbortSignal | null;
}

export interface TranscriptionRequest extends TranslationRequest {
  /** of the clip, such as "en"; verbose_json needs it for models that do not tell it */
  language?: string | null;
}

/** A function that an agent's model may call. */
export interface AgentTool {
  type?: "function";
  function: { name: string; description?: string; parameters?: Schema; strict?: boolean | null };
  /** Its result, as text or JSON; what it throws is told to the model. */
  run(args: Record<string, any>, options: { signal?: AbortSignal | null }): unknown;
}

export type AgentEvent =
  | { type: "turn"; turn: number }
  | { type: "call"; id: string; name: string; arguments: Record<string, any> }
  | { type: "result"; id: string; name: string; content: string };

/** The other fields are those of a chat request that is not streamed. */
export interface AgentRequest {
  messages: Record<string, any>[];
  tools: AgentTool[];
  /** answers of the model at most; the last may call no tool. Default: 8 */
  maxTurns?: number;
  /** tokens of all answers together at most */
  maxTokens?: number;
  signal?: AbortSignal | null;
  onEvent?: (event: AgentEvent) => void;
  [field: string]: any;
}

export interface AgentResult {
  /** the last one */
  message: AssistantMessage;
  /** the request's, the answers and the tools' results */
  messages: Record<string, any>[];
  /** of all turns */
  usage: Pick<TokenUsage, "prompt_tokens" | "completion_tokens" | "total_tokens">;
  turns: number;
  /** "answer": the model answered; "turns", "tokens": a limit ended it */
  ended: "answer" | "turns" | "tokens";
}

/** What a streamed request resolves to. */
type Chunks<Chunk> = import("./stream.js").ChunkStream<Chunk>;

/** An endpoint: with `stream: true` chunks, else the whole answer. */
interface Create<Request, Answer = any, Chunk = any> {
  (request: Request & { stream: true }, options?: import("./connection.js").CallOptions): Promise<Chunks<Chunk>>;
  (request: Request & { stream?: false | null }, options?: import("./connection.js").CallOptions): Promise<Answer>;
  (request: Request, options?: import("./connection.js").CallOptions): Promise<Answer | Chunks<Chunk>>;
}

type Ask = (request: Record<string, any>, options?: import("./connection.js").CallOptions) => Promise<any>;

/** The SDK's methods that answer the requests of HTTP endpoints; app/openai/endpoints.json lists them. */
export interface Api {
  chat: { completions: { create: Create<ChatRequest, ChatCompletion, ChatCompletionChunk>; countTokens: Ask } };
  completions: { create: Create<CompletionRequest, Completion, Completion> };
  responses: { create: Create<ResponsesRequest>; inputTokens: { count: Ask } };
  embeddings: {
    create(
      request: EmbeddingsRequest & { encoding_format: "base64" },
      options?: import("./connection.js").CallOptions,
    ): Promise<Embeddings<string>>;
    create(request: EmbeddingsRequest, options?: import("./connection.js").CallOptions): Promise<Embeddings>;
  };
  /** For models that hear. A translation is into English. */
  audio: {
    transcriptions: { create: Create<TranscriptionRequest> };
    translations: { create: Create<TranslationRequest> };
  };
  /** Ranks documents by their relevance to a query. */
  rerank(request: RerankRequest, options?: import("./connection.js").CallOptions): Promise<Ranking>;
  rerank(request: TextRerankRequest, options?: import("./connection.js").CallOptions): Promise<TextRanking>;
  /** llama.cpp's /tokenize: the token ids of a text, with their pieces on request. */
  tokenization: { create: Create<TokenizeRequest> };
  /** Anthropic's Messages API; a stream has its events. */
  messages: { create: Create<Record<string, any>>; countTokens: Ask };
  /** Ollama's API. Here only `stream: true` is streamed; over HTTP, what does not say `stream: false` is, too. */
  ollama: {
    chat: Create<Record<string, any>>;
    generate: Create<Record<string, any>>;
    embed: Ask;
    /** The older form of `embed`: one `prompt`, one `embedding`. */
    embeddings: Ask;
    show: Ask;
    tags(): Promise<any>;
    ps(): Promise<any>;
    version(): Promise<any>;
  };
  /** LM Studio's API: OpenAI's answers, with `stats`, `model_info` and `runtime`; lists of models. */
  lmStudio: {
    chat: {
      /** A chat that the engine stores, to be continued by the `response_id` of an answer. */
      create: Create<Record<string, any>>;
      completions: { create: Create<Record<string, any>> };
    };
    completions: { create: Create<Record<string, any>> };
    models: {
      list(): Promise<any>;
      /** `models` as version 1 of the API has them, beside OpenAI's list */
      listV1(): Promise<any>;
    };
  };
  /** The endpoints of llama.cpp's server that are its own. */
  llama: {
    completion: Create<Record<string, any>>;
    infill: Create<Record<string, any>>;
    embeddings: Ask;
    detokenize: Ask;
    applyTemplate: Ask;
    props(): Promise<any>;
    /** Which slots work, and on what; `fail_on_no_slot`: an error where all work. */
    slots(query?: { fail_on_no_slot?: boolean }): Promise<any>;
    /** The default model's LoRA adapters and control vectors, with the scales of requests without `lora`. */
    loraAdapters(): Promise<(AdapterScale & { path: string })[]>;
    /** Sets these scales; 0 for those that are left out. */
    setLoraAdapters(scales: AdapterScale[]): Promise<{ success: boolean }>;
    metrics(): Promise<string>;
    health(): Promise<any>;
  };
  models: {
    list(): Promise<ModelList>;
    /** The models in this browser's storage, the last used first. */
    cached(): Promise<CachedModel[]>;
    /**
     * Removes a model, by id or address, from this browser's storage, or all. A loaded model stays loaded.
     * Resolves to the bytes that were freed.
     */
    delete(model?: string): Promise<number>;
    /** Sets whether a model in storage, by id or address, is never removed to make space for others. */
    pin(model: string, pinned?: boolean): Promise<void>;
    /**
     * Replaces a stored file, by id or address, by its host's version, which stays beside it until it is whole. A loaded
     * model stays as it is until it is loaded again. Each file of a set is updated by itself.
     */
    update(model: string, options?: import("./connection.js").CallOptions): Promise<void>;
    /**
     * Calls `listener` when the host of a model that is loaded has a newer version. Hosts are asked at most once a day.
     * Returns a function that ends it.
     */
    onUpdate(listener: (update: { model: string; url: string }) => void): () => void;
    /**
     * Whether a model fits this device, and the speed to expect, before it is downloaded: only its header travels.
     * Pass all addresses of a split model.
     */
    inspect(
      model: import("../wisp.js").Model,
      options?: Pick<import("../wisp.js").LoadRequest, "contextLength" | "backend" | "kvType"> & {
        signal?: AbortSignal | null;
      },
    ): Promise<Inspection>;
  };
}

/** A part of a prompt: token ids, or what the projector makes of a picture, a tile of one, or a piece of sound. */
export type PromptChunk =
  | { kind: "text"; ids: number[] }
  | {
      kind: "image" | "audio";
      /** [n_tokens, n_embd_inp]; the width has all slices of deepstack side by side */
      shape: [number, number];
      embedding: Float32Array;
      /** tokens across and down, of models with M-RoPE; of others, all in a row */
      grid: [number, number];
      /** (n_tokens, 3): time, down and across, from the position where the chunk begins; M-RoPE only */
      positions?: Int32Array | null;
      /** (height, width, 3): what the encoder is given of a picture, before mean and deviation */
      pixels?: Uint8Array;
      pixelsShape?: [number, number, 3];
      /** (n_mel, n_frames), of sound */
      mel?: Float32Array;
      melShape?: [number, number];
    };

/** A dispatch as `profile()` has it. */
export interface Dispatch {
  kernel: string;
  ns: number;
  bytes: number;
  flops: number;
  floor_ns: number;
}
