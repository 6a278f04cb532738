// The heat map and the lines below it, on one time axis.

import { json, LOST, MISSING, matrix, NOT_DUE, stateOf, valueOf } from "./api.js";
import { counted, drawCursor, drawLine, drawPicture, drawSelection, drawSwatch, fitted, range, topOf } from "./draw.js";
import { LONG, lineOf, pictureOf } from "./pictures.js";
import { amount, at, duration, local, make, table, ticks, zoneName } from "./words.js";

const STATES = ["value", "value, partly missing", "zero", "missing", "lost", "not yet due"];
const MAX_SPAN = 31 * 86400, LABEL_HEIGHT = 15, DRAW_MS = 250;
const canvas = at("picture");
const overlay = make("canvas", { id: "overlay", ariaHidden: "true" });
canvas.after(overlay);

let picture = null, cursor = null, drag = null, page = null;
// number: of the last load; loading: that load; draws: of pictures; pending: a span of which cells changed and that is not fetched yet.
// latest: the end of the newest rows of this dataset of which an event came.
let number = 0, loading = Promise.resolve(), draws = 0, pending = null, isUpdating = false, latest = 0;

// given: view() and go(changes) of the URL, systems(), fail(error).
export function startMap(given) {
  page = given;
  at("legend").append(...STATES.map((state) => make("li", {}, make("canvas", { ariaHidden: "true" }), make("span", { id: `legend-${state.replace(/\W+/g, "-")}`, textContent: state }))));
  new ResizeObserver(draw).observe(at("map"));
}

export function span() {
  return [picture.start, picture.start + picture.pixels * picture.seconds];
}

export const isShown = () => Boolean(picture);

// Fetch the picture and the lines of the view.
export function loadMap() {
  return (loading = load());
}

async function load() {
  const now = page.view(), mine = ++number, isCurrent = () => mine === number;
  at("map").classList.toggle("empty", !now.dataset);
  if (!now.dataset) return page.fail(new Error(page.systems().systems.find((one) => one.name === now.system)?.fault || "The archive has no file of this system yet."));
  const what = { system: now.system, dataset: now.dataset }, width = Math.min(4096, Math.max(64, canvas.clientWidth));
  if (picture?.system !== now.system || picture.dataset !== now.dataset) latest = 0; // a system whose clock is ahead moves no other
  const time = page.systems().time, wanted = now.live ? follow(now, Math.max(time, latest), width) : { ...now, width };
  const shown = (found) => {
    picture = found;
    draw();
  };
  try {
    if (wanted.end - wanted.start > LONG) {
      let last = -DRAW_MS; // days come faster than they can be drawn
      const whole = await pictureOf(what, wanted, width, time, (some) => {
        if (performance.now() - last < DRAW_MS) return;
        shown(some());
        last = performance.now();
      }, isCurrent);
      if (isCurrent()) shown(whole);
    } else {
      const found = await matrix({ ...what, start: wanted.start, end: wanted.end, width: wanted.width });
      if (isCurrent()) shown(found);
    }
    if (!isCurrent()) return;
    page.fail(null);
    canvas.dataset.drawn = String(++draws);
    await loadLines(now, isCurrent);
    if (isCurrent()) canvas.dataset.complete = String(mine);
  } catch (error) {
    if (isCurrent()) page.fail(error);
  }
}

// The span up to a time, on a grid of pixels that is the same for all viewers: they ask for the same strips, which are read once.
function follow({ live, system, dataset }, time, width) {
  const { step } = page.systems().systems.find((one) => one.name === system).datasets.find((one) => one.name === dataset);
  const seconds = step * Math.ceil(live / step / width), pixels = Math.ceil(live / seconds), end = Math.ceil(time / seconds) * seconds;
  return { start: end - pixels * seconds, end, width: pixels };
}

// ---- what changes

// Fetch the pixels of changed rows alone, and move on to the end of the span if the page follows the present.
export async function updateMap(from, to) {
  latest = Math.max(latest, to); // the time of the systems is some seconds old: a picture up to it would go back
  pending = pending ? [Math.min(pending[0], from), Math.max(pending[1], to)] : [from, to];
  if (isUpdating) return;
  isUpdating = true;
  await loading; // it may have begun before the change
  while (pending) {
    const span = pending;
    pending = null;
    await update(...span).catch(loadMap); // which reports what is wrong
  }
  isUpdating = false;
}

async function update(from, to) {
  const mine = number, now = page.view(), isCurrent = () => mine === number;
  if (!picture || at("map").hidden || picture.system !== now.system || picture.dataset !== now.dataset) return;
  if (now.live && to > span()[1]) shift(Math.ceil((to - span()[1]) / picture.seconds));
  // What was not due yet may be missing now.
  const first = Math.max(0, Math.floor((Math.min(from, picture.due) - picture.start) / picture.seconds));
  const last = Math.min(picture.pixels, Math.ceil((to - picture.start) / picture.seconds));
  if (last <= first) return;
  const strip = { start: picture.start + first * picture.seconds, end: picture.start + last * picture.seconds, width: last - first };
  const part = await matrix({ system: now.system, dataset: now.dataset, ...strip });
  if (!isCurrent()) return;
  if (!fits(part, strip) || part.columns.join() !== picture.columns.join()) return loadMap();
  picture.levels.set(part.levels, first * picture.columns.length);
  picture.flags.set(part.flags, first * picture.columns.length);
  picture.why = changed(picture.why, part.why, strip);
  picture.due = Math.max(picture.due, part.due);
  draw();
  canvas.dataset.drawn = String(++draws);
  await Promise.all([...at("lines").children].filter((figure) => figure.line).map(async (figure) => {
    // Of its own source other cells may not have been due yet.
    const open = figure.line.flags.findIndex((flags) => flags & NOT_DUE), from = open < 0 ? first : Math.min(first, open);
    const longer = { ...strip, start: picture.start + from * picture.seconds, width: last - from };
    const line = await json("/api/v1/line", { system: now.system, ...figure.about, ...longer });
    if (!isCurrent()) return;
    if (!fits({ ...line, pixels: line.values.length }, longer)) return loadMap();
    figure.line.values.splice(from, line.values.length, ...line.values);
    figure.line.flags.splice(from, line.flags.length, ...line.flags);
    figure.line.why = changed(figure.line.why, line.why, longer);
    showLine(figure);
  }));
}

// Reasons, of which those within a strip are replaced. One that reaches beyond the strip stays there.
const changed = (why, inside, { start, end }) => [
  ...why.flatMap((one) => [{ ...one, end: Math.min(one.end, start) }, { ...one, start: Math.max(one.start, end) }]).filter((one) => one.start < one.end),
  ...inside,
];

const fits = (part, { start, width }) => part.start === start && part.seconds === picture.seconds && part.pixels === width;

// Move the picture and the lines on by some pixels, of which nothing is known yet.
function shift(by) {
  const columns = picture.columns.length, count = Math.min(by, picture.pixels);
  for (const cells of [picture.levels, picture.flags]) cells.copyWithin(0, count * columns);
  picture.levels.fill(0, (picture.pixels - count) * columns);
  picture.flags.fill(NOT_DUE, (picture.pixels - count) * columns);
  picture.start += by * picture.seconds;
  if (cursor) cursor.pixel = Math.max(0, cursor.pixel - by);
  for (const { line } of at("lines").children) {
    if (!line) continue;
    line.values.splice(0, count), line.values.push(...Array(count).fill(null));
    line.flags.splice(0, count), line.flags.push(...Array(count).fill(NOT_DUE));
  }
}

// ---- the lines below

function wantedLines({ system, dataset, target }) {
  const known = page.systems().systems.find((one) => one.name === system)?.datasets ?? [], names = known.map((one) => one.name);
  const operations = known.filter((one) => one.name.startsWith("mdtargets/") && one.units.startsWith("ops")).map((one) => one.name);
  const isShare = picture.units === "%";
  return [
    ...(target ? [{ title: target, about: { dataset, column: target } }] : []),
    { title: isShare ? "largest of all targets" : "sum of all targets", about: { dataset, ...(isShare ? { across: "max" } : {}) } },
    ...(operations.length ? [{ title: "metadata operations, sum of all MDTs", about: { dataset: operations.slice(0, 20).join() } }] : []),
    ...["dataservers", "mdservers"].map((of) => `${of}/cpuload`).filter((name) => names.includes(name) && name !== dataset)
      .map((name) => ({ title: `CPU load, busiest ${name.startsWith("md") ? "MDS" : "OSS"}`, about: { dataset: name, across: "max" } })),
  ];
}

async function loadLines(now, isCurrent) {
  const wanted = wantedLines(now), place = at("lines");
  const kept = new Map([...place.children].map((one) => [one.dataset.title, one]));
  place.replaceChildren(...wanted.map(({ title }) => kept.get(title) ?? make("figure", {}, make("figcaption"), make("div", { className: "beside" },
    make("div"), make("canvas", { className: "line", role: "img" })))));
  wanted.forEach(({ title }, index) => (place.children[index].dataset.title = title));
  const failures = [];
  await Promise.all(wanted.map(async ({ title, about }, index) => {
    const figure = place.children[index];
    try {
      const line = await lineOf({ system: now.system, ...about }, picture, page.systems().time, isCurrent);
      if (isCurrent()) showLine(Object.assign(figure, { about, line }));
    } catch (error) {
      figure.remove();
      if (about.column) failures.push(error);
    }
  }));
  if (isCurrent() && failures.length) page.fail(failures[0]);
}

function showLine(figure) {
  const { line, dataset: { title } } = figure;
  const known = line.values.filter((value) => value !== null), has = (flag) => line.flags.some((flags) => flags & flag);
  const largest = known.reduce((one, two) => Math.max(one, two), 0), cut = largest > topOf(line.values) ? `, cut at ${amount(topOf(line.values), line.units)}` : "";
  const most = known.length ? `at most ${amount(largest, line.units)} in ${picture.step} s${cut}` : "no value";
  const words = `${title}: ${most}${has(MISSING) ? "; hatched: cells are missing" : ""}${has(LOST) ? "; red with crosses: lost" : ""}`;
  figure.querySelector("figcaption").textContent = words;
  // The map above names when and why to those who see it.
  figure.querySelector("canvas").ariaLabel = figure.querySelector("canvas").title = words + (has(LOST) ? lostIn(line.why) : "");
  drawLine(figure.querySelector("canvas"), line);
}

// When and why cells are lost, in words. What was asked for day by day is joined.
function lostIn(why) {
  const spans = [];
  for (const one of why.filter(({ state }) => state === "lost").sort((one, two) => one.start - two.start)) {
    const before = spans.at(-1);
    if (before?.reason === one.reason && one.start <= before.end) before.end = Math.max(before.end, one.end);
    else spans.push({ ...one });
  }
  if (!spans.length) return "";
  const [{ start, end, reason }] = spans;
  return ` ${local(start)} to ${local(end)} (${reason})${spans.length > 1 ? ` and ${spans.length - 1} more` : ""}`;
}

// ---- drawing

export function draw() {
  if (!picture || at("map").hidden) return;
  const [start, end] = span(), now = page.view();
  drawPicture(canvas, picture);
  mark();
  labels();
  ticks(at("times"), start, end);
  for (const figure of at("lines").children) if (figure.line) drawLine(figure.querySelector("canvas"), figure.line);
  at("legend").querySelectorAll("canvas").forEach((swatch, index) => drawSwatch(swatch, STATES[index]));
  const { low, high, isCut } = range(picture.levels), hasValue = picture.levels.some((level) => level > 1);
  at("legend-value").textContent = hasValue
    ? `value, ${amount(valueOf(low, picture.scale), picture.units)} to ${amount(valueOf(high, picture.scale), picture.units)}${isCut ? " and more" : ""}` : "value";
  at("title").textContent = `${picture.system} ${picture.dataset}, ${local(start)} to ${local(end)} ${zoneName()}, ` +
    `${picture.columns.length} targets, largest value of ${picture.step} s in ${duration(picture.seconds)}${now.live ? ", live" : ""}`;
  at("targets").replaceChildren(...picture.columns.map((name) => make("option", { value: name })));
  if (at("numbers").open) numbers();
}

// As many names as there is room for; each stands beside its own row.
function labels() {
  const high = canvas.clientHeight / picture.columns.length, every = Math.max(1, Math.ceil(LABEL_HEIGHT / high));
  at("labels").replaceChildren(...picture.columns.flatMap((name, row) => {
    if (row % every) return [];
    const label = make("span", { textContent: name, title: name });
    label.style.top = `${Math.max(0, Math.min(canvas.clientHeight - LABEL_HEIGHT, (row + 0.5) * high - LABEL_HEIGHT / 2))}px`;
    return [label];
  }));
}

export function numbers() {
  if (!picture) return;
  const body = counted(picture).map(({ name, largest, states }) => [
    name, largest > 1 ? `at least ${amount(valueOf(largest, picture.scale), picture.units)}` : largest ? "0" : "-", ...STATES.map((state) => states[state] ?? 0),
  ]);
  table(at("table"), ["target", "largest value", ...STATES], body);
}

// The cursor and the selection have a canvas of their own, so that a drag does not draw the picture again.
function mark(selection = null) {
  fitted(overlay);
  if (cursor) drawCursor(overlay, picture, cursor);
  if (selection) drawSelection(overlay, ...selection);
}

function read() {
  const { pixel, column } = cursor, cell = pixel * picture.columns.length + column, { levels, flags, scale, units } = picture;
  const time = picture.start + pixel * picture.seconds, level = levels[cell], state = stateOf(level, flags[cell]);
  const below = level < 255 ? ` and below ${amount(valueOf(level + 1, scale), units)}` : "";
  const value = level > 1 ? `, at least ${amount(valueOf(level, scale), units)}${below}` : "";
  const why = picture.why.filter((one) => one.start < time + picture.seconds && time < one.end && (state !== "missing" || one.state !== "lost") && (state !== "lost" || one.state === "lost"));
  const explained = ["missing", "lost", "value, partly missing"].includes(state) && why.length;
  const reason = explained ? ` (${why[0].state}: ${why[0].reason || "no attempt yet"})` : "";
  at("readout").textContent = `${picture.columns[column]}, ${local(time)}: ${state}${value}${reason}`;
}

function point(pixel, column, selection = null) {
  cursor = {
    pixel: Math.min(picture.pixels - 1, Math.max(0, pixel)),
    column: Math.min(picture.columns.length - 1, Math.max(0, column)),
  };
  mark(selection);
  read();
}

// ---- moving and zooming

export function zoom(factor, middle) {
  const [start, end] = span(), length = Math.min(MAX_SPAN, Math.max(picture.step * 12, (end - start) * factor));
  const left = Math.round(middle - ((middle - start) * length) / (end - start));
  page.go({ start: left, end: Math.round(left + length) });
}

export function move(direction) {
  const [start, end] = span(), by = Math.round((direction * (end - start)) / 2);
  page.go({ start: start + by, end: end + by });
}

export const middle = () => (span()[0] + span()[1]) / 2;

const cellAt = (event) => [
  Math.floor((event.offsetX * picture.pixels) / canvas.clientWidth),
  Math.floor((event.offsetY * picture.columns.length) / canvas.clientHeight),
];

const KEYS = {
  ArrowLeft: () => point((cursor?.pixel ?? picture.pixels) - 1, cursor?.column ?? 0),
  ArrowRight: () => point((cursor?.pixel ?? -1) + 1, cursor?.column ?? 0),
  ArrowUp: () => point(cursor?.pixel ?? 0, (cursor?.column ?? 1) - 1),
  ArrowDown: () => point(cursor?.pixel ?? 0, (cursor?.column ?? -1) + 1),
  Enter: () => cursor && page.go({ target: picture.columns[cursor.column] }),
  Escape: () => page.go({ target: "", live: 10800 }),
  "+": () => zoom(0.5, cursor ? picture.start + cursor.pixel * picture.seconds : middle()),
  "-": () => zoom(2, middle()),
};

canvas.addEventListener("keydown", (event) => {
  if (!picture || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener("pointerdown", (event) => ((drag = event.offsetX), canvas.setPointerCapture(event.pointerId)));
canvas.addEventListener("pointercancel", () => (drag = null));
canvas.addEventListener("pointermove", (event) => {
  if (!picture) return;
  const ratio = canvas.width / canvas.clientWidth, isDrag = drag !== null && Math.abs(event.offsetX - drag) > 5;
  point(...cellAt(event), isDrag ? [drag * ratio, event.offsetX * ratio] : null);
});
canvas.addEventListener("pointerup", (event) => {
  const from = drag;
  drag = null;
  if (!picture || from === null) return;
  if (Math.abs(event.offsetX - from) <= 5) return page.go({ target: picture.columns[cellAt(event)[1]] ?? "" });
  const [start, end] = span(), [left, right] = [from, event.offsetX].sort((one, two) => one - two);
  const time = (x) => Math.round((start + ((end - start) * x) / canvas.clientWidth) / picture.step) * picture.step;
  page.go({ start: time(left), end: Math.max(time(right), time(left) + picture.step) });
});
