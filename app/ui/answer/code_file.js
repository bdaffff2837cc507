/** The name of a file with code that a model wrote. */

/** @type {Record<string, string>} language -> file extension, where the two differ */
const ENDINGS = {
  bash: "sh",
  batch: "bat",
  "c#": "cs",
  "c++": "cpp",
  csharp: "cs",
  clojure: "clj",
  console: "txt",
  elixir: "ex",
  erlang: "erl",
  fortran: "f90",
  golang: "go",
  haskell: "hs",
  javascript: "js",
  julia: "jl",
  kotlin: "kt",
  latex: "tex",
  markdown: "md",
  mermaid: "mmd",
  objectivec: "m",
  ocaml: "ml",
  perl: "pl",
  plaintext: "txt",
  powershell: "ps1",
  python: "py",
  ruby: "rb",
  rust: "rs",
  shell: "sh",
  text: "txt",
  typescript: "ts",
  yaml: "yml",
  zsh: "sh",
};
const ENDING = /^[a-z][a-z0-9]{0,9}$/;
const WHOLE = /^(dockerfile|makefile)$/; // languages that are named after their files

/** @param {string} language as the answer names it */
export function codeFileName(language) {
  const name = language.toLowerCase();
  if (WHOLE.test(name)) return name[0].toUpperCase() + name.slice(1);
  const ending = Object.hasOwn(ENDINGS, name) ? ENDINGS[name] : name;
  return `code.${ENDING.test(ending) ? ending : "txt"}`;
}
