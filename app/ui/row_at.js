/** The index of the row at a position. @param {number[]} tops where each row begins, and where the last one ends @param {number} y */
export function rowAt(tops, y) {
  let low = 0;
  let high = tops.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}
