/** What an engine says about itself: `stats()`, `monitor()`, `profile()`, `quality`. Sizes are in bytes, times in ms. */

/** Bytes by pool. */
export type Pools = Record<string, number>;

/** What `stats()` resolves to. Without a loaded model, fields of a model are null or absent. */
export interface Stats {
  model: string | null;
  backend: "webgpu" | "cpu" | null;
  /** the GPU, if the browser has one, whatever the backend */
  adapter: {
    vendor: string;
    architecture: string;
    description: string;
    features: string[];
    limits: Record<string, number>;
  } | null;
  /** tokens */
  context_length: number | null;
  /** of the CPU that the model runs on; 0 on a GPU */
  threads: number;
  /** the projector of a model that sees or hears; `encoded`: pictures and pieces of sound that it was run for */
  projector: { backend: string; modalities: string[]; encoded: number } | null;
  /** whether the model's projector has an encoder of pictures, and one of sound */
  media?: { image: boolean; audio: boolean };
  /** the LoRA adapters and control vectors beside the model, with the scales of requests that give none */
  lora?: { id: number; path: string; scale: number }[];
  /** of the model by pool; `wasm_heap` is Python's memory */
  memory: Pools & { wasm_heap: number };
  /** steps of the start and of the load */
  timings: Record<string, number> & { boot_ms: number };
  /** the newest request */
  last: LastRequest | null;
  /** what happened at the load, and what the engine did by itself since */
  notices?: string[];
  /** prompt tokens that a submit computes at most */
  batch?: number;
  /** requests that may run side by side */
  parallel?: number;
  /** of the KV caches, for each page group; `window` is 0 for full attention */
  pages?: { window: number; total: number; free: number; held: number }[];
  /** that run: tokens in the KV cache, waits for pages */
  sequences?: { number: number; tokens: number; waits: number }[];
  /** since the model was loaded */
  totals?: {
    requests: number;
    prompt_tokens: number;
    cached_tokens: number;
    completion_tokens: number;
    /** milliseconds of all requests, which may have run side by side */
    prompt_ms: number;
    decode_ms: number;
    /** decode steps of each request that verified drafts, and the tokens that they gave */
    draft_steps: number;
    draft_tokens: number;
    /** tokens that the draft model drafted, and how many of them were accepted */
    model_drafted: number;
    model_accepted: number;
    /** batches that the model computed: parts of prompts, and steps; and the sum of their sequences */
    batches: number;
    batch_sequences: number;
    /** tokens of the longest sequence */
    longest: number;
  };
  /** of the prompt cache in the browser's storage; null: it is off */
  prefixes?: { read_tokens: number; written_tokens: number } | null;
  /** which kernels were chosen, and why; null on a browser without WebGPU */
  kernels?: Record<string, any> | null;
  /** the kernels' comparison with the CPU; null: not needed */
  proof?: Record<string, any> | null;
  /** [bytes, nanoseconds] of the device's memory, once `profile()` has measured them */
  read_rates?: [number, number][];
  /** on the CPU, multiply-adds in a nanosecond, by their operands: what `profile()` has measured */
  multiply_rates?: { bytes?: number; floats?: number };
  /** on WebGPU */
  dispatches_per_token?: number;
  submits_per_token?: number;
  /** records of the model's file at its load */
  cache?: {
    records: number;
    from_cache: number;
    cached_bytes: number;
    healed: number;
    verified: number;
    downloaded_bytes: number;
    requests: number;
    read_ms: number;
    hash_ms: number;
  };
  /** all that are loaded */
  models: {
    id: string;
    default: boolean;
    backend: "webgpu" | "cpu" | null;
    context_length: number | null;
    memory: Pools;
    bytes: number;
    /** in progress or waiting */
    requests: number;
  }[];
  /** of all models */
  bytes: number;
  /** for all models together */
  budget: number;
  /** pages that use the engine */
  clients: number;
}

/** One request, as `stats().last` has it. */
export interface LastRequest {
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  /** that were dropped by `truncation: "auto"` */
  shifted_tokens: number;
  prefill_ms: number;
  decode_ms: number;
  submits: number;
  dispatches: number;
  encode_ms: number;
  wait_ms: number;
  seed: number;
}

/** A moment of `monitor()`. `last` means: of the newest request. */
export interface Sample {
  /** ms since 1970 */
  time: number;
  model: string | null;
  /** since the model was loaded */
  requests: number;
  /** generated since the sample before, by all requests */
  tokens_per_second: number;
  /** of a token, last */
  token_ms: number | null;
  /** last */
  first_token_ms: number | null;
  /** last; without cached tokens */
  prompt_tokens_per_second: number | null;
  /** 1 and the accepted draft tokens */
  tokens_per_draft_step: number | null;
  /** part of the prompts' tokens that came from the cache, of up to 8 requests */
  cache_hit_rate: number | null;
  sequences: NonNullable<Stats["sequences"]>;
  context_length: number | null;
  memory: Pools;
  /** Python's memory */
  heap: number;
  /** since the first sample */
  heap_growth: number;
  /** of all models */
  used: number;
  /** for all models */
  budget: number;
  /** bytes a second of a download; null while there is none */
  link: number | null;
  notices: string[];
}

/** What `monitor()` returns: it takes samples until `stop()`. */
export interface MonitorHandle {
  /** the newest ones, oldest first */
  readonly samples: Sample[];
  /** called with each sample */
  onSample: (sample: Sample) => void;
  /** the samples as JSON lines */
  lines(): string;
  stop(): void;
}

export interface QualityOptions {
  /** a loaded one; default: the default model */
  model?: string;
  /** tokens of a chunk; default 512 */
  contextLength?: number;
  /** chunks, or questions */
  onProgress?: (done: number, total: number) => void;
  /** ends it after the present chunk */
  signal?: AbortSignal;
}

/** `error` is the standard error of the perplexity. */
export interface Perplexity {
  perplexity: number;
  error: number;
  tokens: number;
  chunks: number;
}

export interface Divergence {
  /** KL divergence of a token, in nats */
  mean: number;
  max: number;
  /** part of the tokens whose most probable token is the same */
  same_top: number;
  base: Perplexity;
  model: Perplexity;
  tokens: number;
}

/** `answer` is the index of the right choice. */
export interface Question {
  question: string;
  choices: string[];
  answer: number;
}

export interface Score {
  correct: number;
  total: number;
  accuracy: number;
  /** the index of the choice of each question */
  chosen: number[];
}

/** `engine.quality`: how good a model is, by llama.cpp's definitions. */
export interface QualityFigures {
  perplexity(text: string, options?: QualityOptions): Promise<Perplexity>;
  /** of `base`, a loaded model with the same vocabulary, to the model */
  divergence(text: string, options: QualityOptions & { base: string }): Promise<Divergence>;
  /** questions as objects, or as JSON lines */
  multipleChoice(questions: Question[] | string, options?: QualityOptions): Promise<Score>;
}

/** A dispatch as `profile()` has it. */
export interface Dispatch {
  kernel: string;
  ns: number;
  bytes: number;
  flops: number;
  floor_ns: number;
}
