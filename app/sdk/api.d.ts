/** The SDK's methods that answer the requests of HTTP endpoints. */

import type {
  ChatCompletion,
  ChatCompletionChunk,
  Completion,
  Embeddings,
  ModelList,
  Ranking,
  TextRanking,
} from "./answers.d.ts";
import type { CachedModel, Inspection } from "./model_types.d.ts";
import type {
  AdapterScale,
  ChatRequest,
  CompletionRequest,
  EmbeddingsRequest,
  RerankRequest,
  ResponsesRequest,
  TextRerankRequest,
  TokenizeRequest,
  TranscriptionRequest,
  TranslationRequest,
} from "./requests.d.ts";

export {}; // types without `export` stay private

/** What a streamed request resolves to. */
type Chunks<Chunk> = import("./stream.js").ChunkStream<Chunk>;

/** An endpoint: with `stream: true` chunks, else the whole answer. */
interface Create<Request, Answer = any, Chunk = any> {
  (request: Request & { stream: true }, options?: import("./connection.js").CallOptions): Promise<Chunks<Chunk>>;
  (request: Request & { stream?: false | null }, options?: import("./connection.js").CallOptions): Promise<Answer>;
  (request: Request, options?: import("./connection.js").CallOptions): Promise<Answer | Chunks<Chunk>>;
}

type Ask = (request: Record<string, any>, options?: import("./connection.js").CallOptions) => Promise<any>;

/** app/openai/endpoints.json lists the endpoints. */
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
      /** Loads a model that a request may name, with a `context_length` if it is not loaded. */
      load: Ask;
      /** Frees the memory of a loaded model, until a request names it. */
      unload: Ask;
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
