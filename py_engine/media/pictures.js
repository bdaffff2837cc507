/**
 * Decodes pictures in a worker: RGB as it is stored, neither blended with its alpha nor converted to another colour
 * space. An animation gives its first frame.
 *
 * @typedef {import("./resize.js").Picture} Picture
 */
const ROWS = 512; // of a picture that are read at once

/** @param {Uint8Array} bytes @param {string} type @returns {Promise<Picture>} */
export async function decode(bytes, type) {
  const blob = new Blob([/** @type {Uint8Array<ArrayBuffer>} */ (bytes)], { type });
  const bitmap = await createImageBitmap(blob, { premultiplyAlpha: "none", colorSpaceConversion: "none" });
  try {
    return opaque(bitmap) ?? transparent(bitmap);
  } finally {
    bitmap.close();
  }
}

/**
 * A canvas gives opaque pixels as they are. Where alpha is less, it has lost some of the colour.
 * @param {ImageBitmap} bitmap @returns {Picture | null} null if a pixel is transparent
 */
function opaque(bitmap) {
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, Math.min(height, ROWS)).getContext("2d", { willReadFrequently: true });
  if (!canvas) return null;
  const pixels = new Uint8Array(width * height * 3);
  canvas.globalCompositeOperation = "copy";
  for (let y = 0; y < height; y += ROWS) {
    canvas.drawImage(bitmap, 0, -y);
    const rows = canvas.getImageData(0, 0, width, Math.min(ROWS, height - y)).data;
    if (!copyColours(rows, pixels, y * width * 3)) return null;
  }
  return { width, height, pixels };
}

/**
 * WebGL gives colours without regard to alpha.
 * @param {ImageBitmap} bitmap @returns {Picture}
 */
function transparent(bitmap) {
  const { width, height } = bitmap;
  const gl = new OffscreenCanvas(1, 1).getContext("webgl2");
  if (!gl) throw new Error("this browser gives no transparent pictures to a worker (it needs WebGL)");
  const longest = gl.getParameter(gl.MAX_TEXTURE_SIZE);
  if (width > longest || height > longest) throw new Error(`a transparent picture may have ${longest} pixels a side`);
  gl.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
  gl.pixelStorei(gl.UNPACK_COLORSPACE_CONVERSION_WEBGL, gl.NONE);
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  const pixels = new Uint8Array(width * height * 3);
  const rows = new Uint8Array(width * Math.min(height, ROWS) * 4);
  for (let y = 0; y < height; y += ROWS) {
    const count = Math.min(ROWS, height - y);
    gl.readPixels(0, y, width, count, gl.RGBA, gl.UNSIGNED_BYTE, rows);
    copyColours(rows.subarray(0, width * count * 4), pixels, y * width * 3);
  }
  gl.getExtension("WEBGL_lose_context")?.loseContext(); // browsers have few contexts
  return { width, height, pixels };
}

/**
 * Four pixels at once, as four words that become three: in a third of the time of single bytes.
 * @param {Uint8Array | Uint8ClampedArray} rgba @param {Uint8Array} rgb @param {number} at a multiple of 4
 * @returns {boolean} whether all pixels are opaque
 */
function copyColours(rgba, rgb, at) {
  const fours = rgba.length >> 4;
  const from = new Int32Array(rgba.buffer, rgba.byteOffset, 4 * fours);
  const to = new Int32Array(rgb.buffer, at, 3 * fours);
  let alphas = -1;
  for (let i = 0, o = 0; i < from.length; i += 4, o += 3) {
    const a = from[i];
    const b = from[i + 1];
    const c = from[i + 2];
    const d = from[i + 3];
    to[o] = (a & 0xffffff) | (b << 24);
    to[o + 1] = ((b >> 8) & 0xffff) | (c << 16);
    to[o + 2] = ((c >> 16) & 0xff) | (d << 8);
    alphas &= a & b & c & d;
  }
  let alpha = alphas >>> 24;
  for (let i = 16 * fours, o = at + 12 * fours; i < rgba.length; i += 4, o += 3) {
    rgb[o] = rgba[i];
    rgb[o + 1] = rgba[i + 1];
    rgb[o + 2] = rgba[i + 2];
    alpha &= rgba[i + 3];
  }
  return alpha === 255;
}
