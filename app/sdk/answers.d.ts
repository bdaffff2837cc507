/** Answers of the SDK: OpenAI's, with llama.cpp's `timings`. */

export interface TokenUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details?: {
    /** found in the KV caches */
    cached_tokens: number;
    /** of turns that `truncation: "auto"` has dropped */
    truncated_tokens?: number;
  };
  completion_tokens_details?: { reasoning_tokens: number };
}

/** Times in milliseconds, as llama.cpp's server gives them. */
export interface Timings {
  /** tokens of the prompt that were found in the KV caches */
  cache_n: number;
  /** tokens of the prompt that were computed */
  prompt_n: number;
  prompt_ms: number;
  prompt_per_token_ms: number;
  prompt_per_second: number;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_token_ms: number;
  predicted_per_second: number;
  /** until the first token */
  ttft_ms: number;
}

/** "length": `max_tokens` or the context ended it; "tool_calls": it calls functions. */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

/** A token of the vocabulary, with its log-probability. */
export interface TokenLogprob {
  id?: number;
  token: string;
  logprob: number;
  bytes: number[] | null;
}

export interface ChatLogprobs {
  content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[] | null;
  refusal?: null;
}

/** Each list has an entry for each token. */
export interface CompletionLogprobs {
  tokens: string[];
  token_logprobs: (number | null)[];
  top_logprobs: (Record<string, number> | null)[];
  text_offset: number[];
}

export interface ToolCall {
  id: string;
  type: "function";
  /** `arguments` is JSON */
  function: { name: string; arguments: string };
}

export interface AssistantMessage {
  role: "assistant";
  /** null: it only calls functions */
  content: string | null;
  refusal?: null;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
}

interface Head {
  id: string;
  /** seconds since 1970 */
  created: number;
  model: string;
  system_fingerprint?: string;
}

interface Choice {
  index: number;
  /** the stop string that ended it */
  stop_reason?: string;
}

export interface ChatCompletion extends Head {
  object: "chat.completion";
  choices: (Choice & { message: AssistantMessage; logprobs: ChatLogprobs | null; finish_reason: FinishReason })[];
  usage: TokenUsage;
  timings?: Timings;
}

/** What a chunk adds to a message. Of a call, the first one has the id and the name. */
export interface Delta {
  role?: "assistant";
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: {
    index: number;
    id?: string;
    type?: "function";
    function?: { name?: string; arguments?: string };
  }[];
}

export interface ChatCompletionChunk extends Head {
  object: "chat.completion.chunk";
  /** none in the chunk with `usage` */
  choices: (Choice & {
    delta: Delta;
    logprobs?: ChatLogprobs | null;
    finish_reason: FinishReason | null;
    token_ids?: number[];
  })[];
  /** of the last one, with `stream_options: { include_usage: true }` */
  usage?: TokenUsage | null;
  /** of those that end a choice */
  timings?: Timings;
}

/** A completion, or a chunk of one: its texts add up to the whole. */
export interface Completion extends Head {
  object: "text_completion";
  choices: (Choice & {
    text: string;
    logprobs: CompletionLogprobs | null;
    finish_reason: FinishReason | null;
    token_ids?: number[];
  })[];
  usage?: TokenUsage | null;
  timings?: Timings;
}

export interface Embeddings<Embedding = number[]> {
  object: "list";
  /** `embedding`: numbers, or base64 of float32 with `encoding_format: "base64"` */
  data: { object: "embedding"; index: number; embedding: Embedding }[];
  model: string;
  usage: { prompt_tokens: number; total_tokens: number };
}

export interface Ranking {
  object: "list";
  /** by relevance, the highest first; `index`: of the document in the request */
  results: { index: number; relevance_score: number; document?: { text: string } }[];
  model: string;
  usage: { prompt_tokens: number; total_tokens: number };
}

/** By relevance, the highest first; `index`: of the text in the request. */
export type TextRanking = { index: number; score: number; text?: string }[];

/** The loaded models, those of the catalog, and those of other servers. */
export interface ModelList {
  object: "list";
  data: ListedModel[];
}

export interface ListedModel {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
  /** whether it is in memory */
  loaded?: boolean;
  /** whether it answers requests that name no model */
  default?: boolean;
  /** of the catalog: its title, what it is, its licence, its address, its bytes */
  name?: string;
  description?: string;
  license?: string;
  url?: string;
  size?: number;
  sha256?: string;
  [other: string]: any;
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
