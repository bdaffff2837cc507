/** Agents: chats whose tools the SDK runs. */

import type { Schema } from "./answer_forms.d.ts";
import type { AssistantMessage, TokenUsage } from "./answers.d.ts";

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
