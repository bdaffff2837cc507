/** The forms that an answer may have: schemas, expressions, grammars. */

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
