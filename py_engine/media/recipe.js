/** Does what a recipe says (recipe.py): the pixels that an encoder takes of a picture. */
import { resizeFinely } from "./fractions.js";
import { Resizer } from "./resize.js";

/**
 * @typedef {import("./resize.js").Picture} Picture
 * @typedef {[number, number]} Size width and height, or x and y
 * @typedef {{ source: number, size: Size, filter: import("./resize.js").Filter, canvas: Size, at: Size, colour: number[] }} Canvas
 * @typedef {{ canvases: Canvas[], cuts: { source: number, at: Size, size: Size, fine?: Size | null }[] }} Recipe
 */

/** @param {Picture} picture @param {Recipe} recipe @returns {Picture[]} one of each cut */
export function follow(picture, recipe) {
  const resizer = new Resizer();
  const made = [picture];
  for (const canvas of recipe.canvases) {
    const resized = resizer.resize(made[canvas.source], ...canvas.size, canvas.filter);
    made.push(onCanvas(resized, canvas));
  }
  return recipe.cuts.map(({ source, at, size, fine }) => {
    const part = cut(made[source], at, size);
    return fine ? resizeFinely(part, fine) : part;
  });
}

/** @param {Picture} picture @param {Canvas} canvas @returns {Picture} */
function onCanvas(picture, { canvas: [width, height], at: [x, y], colour }) {
  if (picture.width === width && picture.height === height) return picture;
  const pixels = new Uint8Array(width * height * 3);
  if (colour.some(Boolean)) for (let i = 0; i < pixels.length; i++) pixels[i] = colour[i % 3];
  const length = picture.width * 3;
  for (let row = 0; row < picture.height; row++) {
    pixels.set(picture.pixels.subarray(row * length, (row + 1) * length), ((y + row) * width + x) * 3);
  }
  return { width, height, pixels };
}

/** @param {Picture} picture @param {Size} at @param {Size} size @returns {Picture} */
function cut(picture, [x, y], [width, height]) {
  if (picture.width === width && picture.height === height) return picture;
  const pixels = new Uint8Array(width * height * 3);
  for (let row = 0; row < height; row++) {
    const from = ((y + row) * picture.width + x) * 3;
    pixels.set(picture.pixels.subarray(from, from + width * 3), row * width * 3);
  }
  return { width, height, pixels };
}
