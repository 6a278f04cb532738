// Drawing. The five states of a cell differ in shape too: a colour, the darkest colour with dots, hatched, crossed in red, blank.

import { LOST, MISSING, NOT_DUE, stateOf } from "./api.js";

const HATCH = 8; // pixels of the screen between two lines

// viridis as a polynomial of degree 6 (Matt Zucker, CC0).
const VIRIDIS = [
  [0.2777273, 0.0054073, 0.3340998], [0.1050930, 1.4046135, 1.3845901], [-0.3308618, 0.2148476, 0.0950952],
  [-4.6342305, -5.7991010, -19.3324410], [6.2282699, 14.1799334, 56.6905526], [4.7763850, -13.7451454, -65.3530326],
  [-5.4354559, 4.6458526, 26.3124352],
];

const PALETTE = Array.from({ length: 256 }, (_, index) =>
  [0, 1, 2].map((channel) => {
    const value = VIRIDIS.reduceRight((sum, row) => sum * (index / 255) + row[channel], 0);
    return Math.round(255 * Math.min(1, Math.max(0, value)));
  }));

// The levels over which the colours are spread: a few outliers on either side have the first or the last colour, and so does what is beyond.
export function range(levels) {
  const counts = new Uint32Array(256);
  for (const level of levels) counts[level]++;
  const few = counts.subarray(2).reduce((sum, count) => sum + count, 0) / 500;
  const edge = (first, by) => {
    let level = first;
    for (let sum = counts[level]; sum <= few && level + by >= 2 && level + by <= 255; sum += counts[level]) level += by;
    return level;
  };
  const low = edge(2, 1), high = edge(255, -1);
  return { low: Math.min(low, high), high: Math.max(low, high), isCut: counts.subarray(high + 1).some(Boolean) };
}

function colours({ low, high }) {
  const found = new Uint8Array(256 * 3);
  for (let level = 1; level < 256; level++) {
    const place = level === 1 ? 0 : 24 + Math.round((231 * (level - low)) / Math.max(1, high - low));
    found.set(PALETTE[Math.min(255, Math.max(0, place))], 3 * level);
  }
  return found;
}

// Paper is white, whatever the screen is.
function dark() {
  return matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
}

// Fit the canvas to its place on the screen and return its context.
export function fitted(canvas) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  return canvas.getContext("2d");
}

function paint(data, at, x, y, level, flags, table, isDark) {
  const isLine = (x + y) % HATCH === 0, isCross = isLine || (x - y + 8 * HATCH * 4096) % HATCH === 0;
  let red, green, blue;
  if (level) {
    [red, green, blue] = [table[3 * level], table[3 * level + 1], table[3 * level + 2]];
    if (isLine && flags & (MISSING | LOST)) red = green = blue = 200;
    else if (level === 1 && x % HATCH === 3 && y % HATCH === 3) red = green = blue = 200;
  } else if (flags & LOST) {
    [red, green, blue] = isCross ? [255, 255, 255] : [200, 16, 46];
  } else if (flags & MISSING) {
    red = green = blue = isLine || (x + y + 1) % HATCH === 0 ? 110 : isDark ? 60 : 215;
  } else {
    [red, green, blue] = isDark ? [22, 24, 28] : [255, 255, 255];
  }
  data[at] = red; data[at + 1] = green; data[at + 2] = blue; data[at + 3] = 255;
}

// Time runs to the right, the first target is on top.
export function drawPicture(canvas, picture) {
  const context = fitted(canvas), { width, height } = canvas, columns = picture.columns.length;
  const image = context.createImageData(width, height), table = colours(range(picture.levels)), isDark = dark();
  const pixels = Int32Array.from({ length: width }, (_, x) => Math.floor((x * picture.pixels) / width) * columns);
  for (let y = 0, at = 0; y < height; y++) {
    const column = Math.floor((y * columns) / height);
    for (let x = 0; x < width; x++, at += 4) {
      const cell = pixels[x] + column;
      paint(image.data, at, x, y, picture.levels[cell], picture.flags[cell], table, isDark);
    }
  }
  context.putImageData(image, 0, 0);
}

export function drawCursor(canvas, picture, { pixel, column }) {
  const context = canvas.getContext("2d"), wide = canvas.width / picture.pixels, high = canvas.height / picture.columns.length;
  for (const [colour, thick] of [["#000", 4], ["#fff", 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.strokeRect(pixel * wide, column * high, Math.max(wide, 4), Math.max(high, 4));
  }
}

export function drawSelection(canvas, from, to) {
  const context = canvas.getContext("2d");
  context.fillStyle = "rgba(128, 128, 255, 0.4)";
  context.fillRect(Math.min(from, to), 0, Math.abs(to - from), canvas.height);
}

const SAMPLES = { zero: [1, 0], missing: [0, MISSING], lost: [0, LOST], "not yet due": [0, NOT_DUE], "value, partly missing": [140, MISSING] };

function painted(width, height, sample, levels) {
  const image = new ImageData(width, height), table = colours(levels), isDark = dark();
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 4) paint(image.data, at, x, y, ...sample(x), table, isDark);
  }
  return image;
}

// Fill a canvas with the look of a state, or with the colours of all values.
export function drawSwatch(canvas, state) {
  const context = fitted(canvas), { width, height } = canvas, all = { low: 2, high: 255 };
  const sample = state === "value" ? (x) => [Math.round(2 + (253 * x) / Math.max(1, width - 1)), 0] : () => SAMPLES[state];
  context.putImageData(painted(width, height, sample, all), 0, 0);
}

// A state's look as what a context fills with.
export function patternOf(context, state) {
  const tile = new OffscreenCanvas(HATCH, HATCH);
  tile.getContext("2d").putImageData(painted(HATCH, HATCH, () => SAMPLES[state], { low: 2, high: 255 }), 0, 0);
  return context.createPattern(tile, "repeat");
}

// The largest value that a line is drawn with: not an outlier, which would leave the rest flat.
export function topOf(values) {
  const sorted = values.filter((value) => value !== null).sort((one, two) => one - two), largest = sorted.at(-1) ?? 0;
  const usual = sorted[Math.floor(0.98 * (sorted.length - 1))] ?? 0;
  return usual > 0 && largest > 20 * usual ? 1.5 * usual : largest;
}

// A line from zero up. Where no cell has a value it is broken, and the look of their state fills the height; where some have none, the foot.
// A peak that is cut has a bar on top.
export function drawLine(canvas, { values, flags }) {
  const context = fitted(canvas), { width, height } = canvas, ratio = devicePixelRatio || 1;
  const top = topOf(values) || 1, foot = HATCH * ratio, style = getComputedStyle(canvas), wide = width / values.length;
  // What is lost is on top, and wide enough to be seen: it does not come back.
  for (const [flag, state, least] of [[MISSING, "missing", 1], [LOST, "lost", Math.round(4 * ratio)]]) {
    context.fillStyle = patternOf(context, state);
    flags.forEach((found, index) => {
      if (!(found & flag)) return;
      const from = Math.ceil(index * wide), high = values[index] === null ? height : foot;
      context.fillRect(Math.min(from, width - least), height - high, Math.max(least, Math.ceil((index + 1) * wide) - from), high);
    });
  }
  context.strokeStyle = context.fillStyle = style.color;
  context.beginPath();
  let isDrawing = false;
  values.forEach((value, index) => {
    const x = (index + 0.5) * wide, y = height - foot - 1 - ((height - foot - 5 * ratio) * Math.min(top, value ?? 0)) / top;
    if (value !== null) (isDrawing ? context.lineTo(x, y) : context.moveTo(x, y), context.lineTo(x + 1, y));
    if (value > top) context.fillRect(x - 4 * ratio, 0, 8 * ratio, 3 * ratio);
    isDrawing = value !== null;
  });
  context.lineWidth = 1.5 * ratio;
  context.stroke();
}

// How many pixels of each target are in each state, and the largest level.
export function counted(picture) {
  return picture.columns.map((name, column) => {
    const states = {};
    let largest = 0;
    for (let cell = column; cell < picture.levels.length; cell += picture.columns.length) {
      const state = stateOf(picture.levels[cell], picture.flags[cell]);
      states[state] = (states[state] ?? 0) + 1;
      largest = Math.max(largest, picture.levels[cell]);
    }
    return { name, largest, states };
  });
}
