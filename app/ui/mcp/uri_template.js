/** Addresses with variables in braces, by RFC 6570. All variables are texts. */

/**
 * @typedef {object} Expression `{?a,b}`
 * @property {string} operator
 * @property {{ name: string, length: number }[]} variables `length`: characters of the value that count
 *
 * @typedef {object} Operator
 * @property {string} [first] before the first value
 * @property {string} separator between two
 * @property {boolean} [reserved] whether values keep the characters that have a meaning in addresses
 * @property {(name: string, value: string) => string} [pair] a value with its name; else only the value is written
 */
const EXPRESSION = /\{([^{}]*)\}/g;
const VARIABLE = /(?:[\w.]|%[0-9A-Fa-f]{2})+(?::[1-9]\d{0,3}|\*)?/.source;
const CONTENT = new RegExp(`^([+#./;?&]?)(${VARIABLE}(?:,${VARIABLE})*)$`);
const RESERVED = /%[0-9a-f]{2}|[:/?#[\]@!$&'()*+,;=]/gi; // percent-encoded, or reserved
const LIKE_RESERVED = /[!'()*]/g; // reserved, but not encoded by encodeURIComponent
/** @type {Record<string, Operator>} */
const OPERATORS = {
  "": { separator: "," },
  "+": { separator: ",", reserved: true },
  "#": { first: "#", separator: ",", reserved: true },
  ".": { first: ".", separator: "." },
  "/": { first: "/", separator: "/" },
  ";": { first: ";", separator: ";", pair: (name, value) => (value ? `${name}=${value}` : name) },
  "?": { first: "?", separator: "&", pair: (name, value) => `${name}=${value}` },
  "&": { first: "&", separator: "&", pair: (name, value) => `${name}=${value}` },
};

/** The variables of a template, each once, or null if it has an expression that cannot be read. @param {string} template */
export function variablesOf(template) {
  const contents = [...template.matchAll(EXPRESSION)].map(([, content]) => content);
  if (/[{}]/.test(template.replace(EXPRESSION, "")) || !contents.every((content) => CONTENT.test(content))) return null;
  /** @type {Map<string, boolean>} */
  const required = new Map(); // of a name: whether the address is incomplete without it
  for (const { operator, variables } of contents.map(parsed))
    for (const { name } of variables) required.set(name, required.get(name) || operator === "" || operator === "+");
  return [...required].map(([name, required]) => ({ name, required }));
}

/** The address with these values; variables without one are left out. @param {string} template @param {Record<string, string>} values */
export function expanded(template, values) {
  return template.replace(EXPRESSION, (_, content) => {
    const { operator, variables } = parsed(content);
    const { first = "", separator, reserved = false, pair } = OPERATORS[operator];
    const given = variables.filter(({ name }) => Object.hasOwn(values, name));
    const parts = given.map(({ name, length }) => {
      const value = encoded([...values[name]].slice(0, length).join(""), reserved);
      return pair ? pair(name, value) : value;
    });
    return parts.length ? first + parts.join(separator) : "";
  });
}

/** @param {string} content of CONTENT's form @returns {Expression} */
function parsed(content) {
  const [, operator, list] = /** @type {RegExpExecArray} */ (CONTENT.exec(content));
  const variables = list.split(",").map((one) => {
    const [name, length] = one.replace("*", "").split(":"); // a text has nothing to explode
    return { name, length: Number(length ?? Infinity) };
  });
  return { operator, variables };
}

/** @param {string} value @param {boolean} reserved */
function encoded(value, reserved) {
  if (!reserved) return plain(value);
  const between = value.match(RESERVED) ?? [];
  return value
    .split(RESERVED)
    .map((part, i) => plain(part) + (between[i] ?? ""))
    .join("");
}

/** @param {string} value */
function plain(value) {
  const hex = (/** @type {string} */ character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(value).replace(LIKE_RESERVED, hex);
}
