// The gaps of each source on a time axis, and in a table.

import { json } from "./api.js";
import { drawSwatch, fitted, patternOf } from "./draw.js";
import { at, button, local, make, table, ticks, zoneName } from "./words.js";

const DAY = 86400;
const WORDS = {
  due: "missing: due, not asked for yet", failed: "missing: failed, asked again", rejected: "missing: rejected", lost: "lost: the source does not hold it any more",
  empty: "missing: the source had no record",
};
const HIGH = 26;
let last = null;

export async function showGaps(sources, days, go) {
  const found = await json("/api/v1/gaps", { start: `-${days}d` });
  last = { found, days, names: sources.map((one) => one.name), systems: new Map(sources.map((one) => [one.name, one.system])) };
  drawGaps();
  const { gaps, left_off: left } = found, start = found.time - days * DAY;
  at("gapspan").textContent = `${local(start)} to ${local(found.time)} ${zoneName()}: ` +
    `${gaps.length ? `${gaps.length + left} gaps` : "no gaps"}${left ? `, the newest ${gaps.length} are shown` : ""}.`;
  const newest = [...gaps].sort((one, two) => two.start - one.start);
  table(at("gaptable"), ["source", "start", "end", "state", "map", "reason"], newest.map((gap) => [
    gap.source, local(gap.start), local(gap.end), gap.state,
    button("Show", () => go({ view: "map", system: last.systems.get(gap.source) ?? "", ...around(gap) }), { ariaLabel: `Show ${gap.source} ${local(gap.start)}` }),
    gap.reason || "no attempt yet",
  ]));
}

// As long again before it and after it, at most a month in all.
function around({ start, end }) {
  const by = Math.max(600, Math.min(end - start, 10 * DAY)), from = Math.floor(start - by);
  return { start: from, end: Math.min(Math.ceil(end + by), from + 31 * DAY) };
}

// Draw them again for another width, or in other colours.
export function drawGaps() {
  if (!last || at("gaps").hidden) return;
  const { found, days, names } = last, start = found.time - days * DAY, axis = at("axis"), seen = new Set();
  axis.style.height = at("axisnames").style.height = `${Math.max(1, names.length) * HIGH}px`;
  at("axisnames").replaceChildren(...names.map((name, row) => {
    const label = make("span", { textContent: name, title: name });
    label.style.top = `${row * HIGH + (HIGH - 15) / 2}px`;
    return label;
  }));
  const context = fitted(axis), ratio = axis.width / axis.clientWidth, scale = axis.width / (days * DAY);
  context.strokeStyle = "#888";
  names.forEach((_, row) => context.strokeRect(-1, row * HIGH * ratio, axis.width + 2, HIGH * ratio));
  const lostOnTop = [...found.gaps].sort((one, two) => (one.state === "lost") - (two.state === "lost"));
  for (const gap of lostOnTop) {
    const from = Math.max(gap.start, start), row = names.indexOf(gap.source);
    seen.add(gap.state);
    const wide = Math.ceil(Math.max(4 * ratio, (gap.end - from) * scale));
    const place = [Math.floor(Math.min((from - start) * scale, axis.width - wide)), (row * HIGH + 3) * ratio, wide, (HIGH - 6) * ratio];
    context.fillStyle = patternOf(context, gap.state === "lost" ? "lost" : "missing");
    context.fillRect(...place);
    if (place[2] > 8 * ratio) context.strokeRect(...place);
  }
  at("axislegend").replaceChildren(...Object.keys(WORDS).filter((state) => seen.has(state)).map((state) => {
    const swatch = make("canvas", { ariaHidden: "true" }), item = make("li", {}, swatch, make("span", { textContent: WORDS[state] }));
    requestAnimationFrame(() => drawSwatch(swatch, state === "lost" ? "lost" : "missing"));
    return item;
  }));
  ticks(at("axistimes"), start, found.time);
}
