/** Servers of the Model Context Protocol, as `mcp.connect()` has them. */

import type { AgentTool } from "./agent_types.d.ts";

/** How to connect to a server of the Model Context Protocol. */
export interface McpOptions {
  /** goes before the names of its tools, so that those of several servers differ: NAME_TOOL */
  name?: string;
  /** is sent to it as `Authorization: Bearer TOKEN`, and to no other host */
  token?: string;
  /** other headers of each request */
  headers?: Record<string, string>;
  /** signs the user in where the server asks for that (OAuth); default: such a server is an error */
  signIn?: McpSignIn;
  /** seconds without an answer or progress, default 300 */
  timeout?: number;
  /** ends the attempt to connect */
  signal?: AbortSignal | null;
  /** Answers a question of the server; without it, servers do not ask. */
  onInput?: (question: McpQuestion) => McpAnswer | Promise<McpAnswer>;
  onProgress?: (progress: { tool: string; progress: number; total?: number; message?: string }) => void;
  /** gets the tools when the server has changed them */
  onTools?: (tools: McpTool[]) => void;
  /** the connection has ended, not by `close()` */
  onClose?: () => void;
}

/** How a user signs in to a server, by a redirect of its authorization server. */
export interface McpSignIn {
  /** where the user comes back to: an address of this origin */
  redirectUrl: string;
  /** Shows the user an address of the authorization server; resolves to the address at which the user came back. */
  open(url: URL): Promise<string>;
  /** what `onStored` got at an earlier time, for the same server */
  stored?: McpGrant | null;
  /** gets the tokens to store: a secret */
  onStored?: (grant: McpGrant) => void | Promise<void>;
}

/** Wisp's registration at an authorization server, and the user's tokens. */
export interface McpGrant {
  client?: any;
  tokens?: any;
}

/** What a server asks the user while a tool runs. */
export interface McpQuestion {
  /** the server's name */
  server: string;
  message: string;
  /** of the object that answers, flat; or */
  schema?: Record<string, any>;
  /** where the user answers */
  url?: string;
}

/** An object that fits the question's schema, or true for an address that was opened; null: the user declines; undefined: cancelled. */
export type McpAnswer = Record<string, any> | true | null | undefined;

/** `own`: the server's name of it, which may have other characters */
export type McpTool = AgentTool & { own: string };

/** A server of the Model Context Protocol. Calls reject with a WispError; a tool that fails, with what it says. */
export interface McpServer {
  readonly name: string;
  readonly version: string;
  /** the protocol's revision, such as "2026-07-28" */
  readonly protocol: string;
  /** how its tools are to be used, for a system prompt */
  readonly instructions: string;
  readonly tools: McpTool[];
  /** Calls a tool by the server's own name of it. */
  call(name: string, given: Record<string, any>, options?: McpCallOptions): Promise<McpResult>;
  resources(): Promise<McpResource[]>;
  /** A resource's contents: `text`, or `blob` in base64. */
  read(uri: string): Promise<{ uri: string; mimeType?: string; text?: string; blob?: string }[]>;
  prompts(): Promise<McpPrompt[]>;
  /** A prompt's messages, for a chat request. */
  prompt(name: string, given?: Record<string, string>): Promise<Record<string, any>[]>;
  close(): Promise<void>;
}

export interface McpCallOptions {
  signal?: AbortSignal | null;
  onProgress?: (progress: { progress: number; total?: number; message?: string }) => void;
}

export interface McpResult {
  text: string;
  media: McpMedium[];
  /** the text says what went wrong */
  failed: boolean;
}

/** A picture, a sound or another file, in base64. */
export interface McpMedium {
  mimeType: string;
  data: string;
}

export interface McpResource {
  /** of a template: with variables, as RFC 6570 has them */
  uri: string;
  name: string;
  description?: string;
  mimeType?: string;
  template?: boolean;
}

export interface McpPrompt {
  name: string;
  description?: string;
  arguments?: { name: string; description?: string; required?: boolean }[];
}
