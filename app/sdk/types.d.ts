/** All types of the SDK. */

export type {
  Dispatch,
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

export type * from "./agent_types.d.ts";
export type * from "./answer_forms.d.ts";
export type * from "./answers.d.ts";
export type * from "./api.d.ts";
export type * from "./mcp_types.d.ts";
export type * from "./model_types.d.ts";
export type * from "./requests.d.ts";
