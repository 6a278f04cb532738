// Pictures of any span. One of several days is asked for day by day, newest first: the days appear as they are read, and the server keeps
// each of them for the next viewer.

import { json, MISSING, matrix, NOT_DUE } from "./api.js";

const DAY = 86400, CONNECTIONS = 4;
const PIXEL_SECONDS = [300, 600, 900, 1800, 3600];
export const LONG = 2 * DAY;

// The seconds of a pixel of a long span, and the span as a whole number of pixels.
function grid({ start, end }, width) {
  const seconds = PIXEL_SECONDS.find((one) => (end - start) / one <= width) ?? 3600;
  return { seconds, first: Math.floor(start / seconds) * seconds, last: Math.ceil(end / seconds) * seconds };
}

// Ask for each day of a grid, a few at the same time. A day without a file has no answer; another failure is thrown at the end.
async function eachDay({ seconds, first, last }, isCurrent, ask) {
  const days = [];
  for (let from = Math.floor(first / DAY) * DAY; from < last; from += DAY) days.unshift([Math.max(from, first), Math.min(from + DAY, last)]);
  let failure = null;
  const next = async () => {
    while (days.length && isCurrent()) {
      const [start, end] = days.shift();
      try {
        await ask({ start, end, width: (end - start) / seconds });
      } catch (error) {
        if (error.type !== "no_data") failure = error;
      }
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, next));
  if (failure) throw failure;
}

// Return the picture of a long span. After each day, call shown(picture), where picture() is what there is of it by then. now: epoch seconds; isCurrent: whether it is still wanted.
export async function pictureOf(what, span, width, now, shown, isCurrent) {
  const days = grid(span, width), whole = new Days(days.first, (days.last - days.first) / days.seconds, days.seconds, now);
  await eachDay(days, isCurrent, async (part) => {
    whole.add(await matrix({ ...what, ...part }));
    if (isCurrent()) shown(() => whole.picture());
  });
  if (!isCurrent()) return null;
  if (!whole.header) throw new Error("The archive has no data of this time.");
  return whole.picture();
}

// A line of the time of a picture: pixel by pixel its value and the flags of missing cells, and why they are missing. now: as above.
export async function lineOf(what, picture, now, isCurrent) {
  const start = picture.start, end = start + picture.pixels * picture.seconds;
  if (end - start <= LONG) return json("/api/v1/line", { ...what, start, end, width: picture.pixels });
  const values = Array(picture.pixels).fill(null), flags = values.map((_, index) => (start + index * picture.seconds >= now ? NOT_DUE : MISSING)), why = [];
  let units = "";
  await eachDay({ seconds: picture.seconds, first: start, last: end }, isCurrent, async (part) => {
    const line = await json("/api/v1/line", { ...what, ...part }), before = (line.start - start) / picture.seconds;
    units = line.units;
    why.push(...line.why);
    line.values.forEach((value, index) => ((values[before + index] = value), (flags[before + index] = line.flags[index])));
  });
  return { units, values, flags, why };
}

// The picture of several days. Their targets may differ: one that came later is missing before.
class Days {
  constructor(start, pixels, seconds, now) {
    Object.assign(this, { start, pixels, seconds, now, header: null, parts: [], why: [] });
  }

  add(part) {
    if (part.seconds !== this.seconds) throw new Error(`The dataset has rows of ${part.step} s: ask for a shorter span.`);
    if (!this.header || part.start > this.header.start) this.header = part;
    this.parts.push(part);
    this.why.push(...part.why);
  }

  picture() {
    const { start, pixels, seconds } = this;
    const columns = [...new Set([this.header, ...this.parts].flatMap((part) => part.columns))], places = new Map(columns.map((name, place) => [name, place]));
    const levels = new Uint8Array(pixels * columns.length), flags = new Uint8Array(pixels * columns.length);
    for (let pixel = 0; pixel < pixels; pixel++) {
      flags.fill(start + pixel * seconds >= this.now ? NOT_DUE : MISSING, pixel * columns.length, (pixel + 1) * columns.length);
    }
    for (const part of this.parts) {
      const before = (part.start - start) / seconds, into = part.columns.map((name) => places.get(name));
      for (let pixel = 0; pixel < part.pixels; pixel++) {
        for (let column = 0; column < into.length; column++) {
          const to = (before + pixel) * columns.length + into[column], from = pixel * into.length + column;
          levels[to] = part.levels[from], flags[to] = part.flags[from];
        }
      }
    }
    return { ...this.header, start, pixels, columns, levels, flags, why: this.why };
  }
}
