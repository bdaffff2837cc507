/** Example prompts for the start page, of kinds that Wisp Mini answers well. */
export const EXAMPLES = [
  { label: "Ask", prompt: "What is WebGPU?" },
  { label: "Write", prompt: "Write a short story about a fox who finds a silver key." },
  { label: "Compare", prompt: "Make a table of France and Japan with the capital and the currency." },
  { label: "Code", prompt: "Write a Python function that reverses a string." },
  { label: "Translate", prompt: 'How do you say "hello" in Japanese, Korean and Russian?' },
  {
    label: "Extract",
    prompt: "Extract name, age and city as JSON: Maria is 31 years old, lives in Porto and works as a nurse.",
  },
];
