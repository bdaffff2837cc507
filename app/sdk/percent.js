/** A name from an address with its percent-encoding decoded; one that is not encoded stays. @param {string} text */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
