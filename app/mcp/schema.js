/** @typedef {Record<string, any>} Json */

const NAMED = ["properties", "$defs", "definitions"]; // name -> schema
const ONE_OF = ["anyOf", "oneOf"];
const LEFT = /"(allOf|not|if|dependentSchemas|unevaluatedProperties|\$dynamicRef)":/; // schemas that see each other's properties
const OPEN = ["additionalProperties", "patternProperties", "$ref", ...ONE_OF]; // say more of an object than its properties

/**
 * A tool's schema with `additionalProperties: false` where it lists properties and leaves others open: no tool does
 * anything with arguments that it does not list, and small models would go on inventing them.
 * @param {any} schema @returns {any}
 */
export const closed = (schema) => (LEFT.test(JSON.stringify(schema)) ? schema : close(schema));

/** @param {any} schema @returns {any} */
function close(schema) {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return schema;
  const lists = typeof schema.properties === "object";
  /** @type {Json} */
  const made = { ...schema };
  for (const keyword of NAMED) if (schema[keyword]) made[keyword] = each(schema[keyword]);
  if (schema.items) made.items = close(schema.items);
  if (!lists)
    for (const keyword of ONE_OF) if (Array.isArray(schema[keyword])) made[keyword] = schema[keyword].map(close);
  return lists && !OPEN.some((keyword) => keyword in schema) ? { ...made, additionalProperties: false } : made;
}

/** @param {Json} schemas */
const each = (schemas) => Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, close(schema)]));
