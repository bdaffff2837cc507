/** Models before they are loaded: on their hosts, in the download queue, in the browser's storage. */

/** What `models.inspect()` resolves to. Sizes are in bytes. */
export interface Inspection {
  model: string;
  architecture: string;
  parameters: number;
  /** the tensor type of most of its bytes */
  quantization: string | null;
  /** the longest context that the model was trained for */
  trained_context: number | null;
  /** of all files */
  download: number;
  /** that this call has downloaded */
  travelled: number;
  /**
   * "fits"; "maybe": it needs more than the budget, which is an estimate; "too_large": it exceeds the device's limits or
   * a budget that was set; "unsupported": the engine cannot run it, and the fields below are absent
   */
  verdict: "fits" | "maybe" | "too_large" | "unsupported";
  /** why it is not "fits" */
  advice: string | null;
  backend?: "webgpu" | "cpu";
  /** tokens: the default, or the longest power of two below it that fits */
  context_length?: number;
  weights?: number;
  kv?: number;
  activations?: number;
  /** buffers that the host writes */
  state?: number;
  /** memory that the load takes */
  total?: number;
  /** for all models together */
  budget?: number;
  /** that a decode step reads, at position 1,024; null for embedding models */
  bytes_per_token?: number | null;
  /** at most so many tokens a second, by the device's measured read rate */
  tokens_per_second?: number | null;
}

/** A model in the download queue. */
export interface QueuedDownload {
  id: string;
  /** its name */
  model: string;
  urls: string[];
  /** "loading": a load has taken it over */
  state: "queued" | "running" | "paused" | "failed" | "done" | "loading";
  /** bytes in storage or on their way there */
  loaded: number;
  /** of all files; 0: not known yet */
  total: number;
  /** bytes a second */
  speed: number;
  seconds_left: number | null;
  error: import("./error.js").ErrorBody | null;
}

/** A model in the browser's storage. */
export interface CachedModel {
  id: string;
  url: string;
  /** of the file, in bytes */
  size: number;
  /** of the file, in storage */
  bytes: number;
  complete: boolean;
  /** whether its SHA-256 was compared with the one that its host or the load request states */
  verified: boolean;
  /** never removed to make space for others */
  pinned: boolean;
  /** Unix time in seconds; null: not known */
  last_used: number | null;
  /** whether it is in memory, too */
  loaded: boolean;
}
