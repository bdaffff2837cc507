/** Requests of the SDK: OpenAI's, with llama.cpp's extensions. */

import type { Form, Schema } from "./answer_forms.d.ts";

export {}; // interfaces without `export` stay private

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
  /**
   * llama.cpp's: the norm by which each embedding is scaled. -1: none. 0: the largest value becomes 32,760. 2 (default) or
   * any p: the p-norm becomes 1.
   */
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
  /** Which side of a document is left out then; default: `"Right"`, its end. */
  truncation_direction?: "Left" | "Right" | null;
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
