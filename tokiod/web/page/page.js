// The page: its state is the URL. Names of targets are text, never markup.

import { json, matrix, stateOf, valueOf } from "./api.js";
import { counted, drawCursor, drawLegend, drawLine, drawPicture, drawSelection } from "./draw.js";

const at = (id) => document.getElementById(id);
const canvas = at("picture");
const DAY = 86400;
const MAX_SPAN = 31 * DAY;
const STATES = ["value", "value, partly missing", "zero", "missing", "lost", "not yet due"];

let systems = null, picture = null, line = null, cursor = null, drag = null, number = 0, events = null, feed = false;

// ---- the URL: view, system, dataset, target, and live=SECONDS or start and end

function view() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  const first = systems.systems.find((one) => one.datasets.length) ?? systems.systems[0];
  const system = systems.systems.find((one) => one.name === given.system) ?? first;
  const names = (system?.datasets ?? []).map((one) => one.name);
  const past = Number(given.start) && Number(given.end) > Number(given.start);
  return {
    view: ["map", "systems", "gaps"].includes(given.view) ? given.view : "map",
    system: system?.name ?? "",
    dataset: names.includes(given.dataset) ? given.dataset : names.find((name) => name === "datatargets/readbytes") ?? names[0] ?? "",
    target: given.target ?? "",
    ...(past ? { start: Number(given.start), end: Number(given.end) } : { live: Number(given.live) || 10800 }),
  };
}

function go(changes) {
  const next = { ...view(), ...changes };
  if (changes.live) delete next.start, delete next.end;
  if (changes.start) delete next.live;
  history.pushState(null, "", `?${new URLSearchParams(Object.entries(next).filter(([, value]) => value !== ""))}`);
  show();
}

// ---- words

const local = (time, options) =>
  new Date(time * 1000).toLocaleString("sv-SE", { timeZone: systems.timezone, ...options });

function amount(value) {
  const units = picture.units;
  const [base, names] = units.startsWith("bytes") ? [1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]] : [1000, ["", "k", "M", "G", "T", "P"]];
  let power = 0;
  while (value >= base && power < names.length - 1) (value /= base), power++;
  return `${Number(value.toPrecision(3))} ${names[power]}${units}`.trim();
}

function rows(table, head, body) {
  table.replaceChildren();
  const top = table.createTHead().insertRow();
  for (const word of head) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = word;
    top.append(cell);
  }
  const rest = table.createTBody();
  for (const words of body) {
    const row = rest.insertRow();
    for (const word of words) word instanceof Node ? row.insertCell().append(word) : (row.insertCell().textContent = word);
  }
}

function button(word, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = word;
  made.addEventListener("click", action);
  return made;
}

function fail(error) {
  at("error").hidden = !error;
  at("error").textContent = error ? error.message : "";
}

// ---- the heat map

async function load() {
  const now = view(), mine = ++number;
  if (!now.dataset) return fail(new Error("The archive has no file of this system yet."));
  const time = now.live ? { start: `-${now.live}s` } : { start: now.start, end: now.end };
  const what = { system: now.system, dataset: now.dataset, ...time, width: Math.min(4096, Math.max(64, canvas.clientWidth)) };
  let unknown = null;
  try {
    const [found, one] = await Promise.all([
      matrix(what),
      now.target ? json("/api/v1/line", { ...what, column: now.target }).catch((error) => ((unknown = error), null)) : null,
    ]);
    if (mine !== number) return;
    [picture, line] = [found, one];
    fail(unknown);
    draw();
  } catch (error) {
    if (mine === number) fail(error);
  }
}

function draw() {
  if (!picture || at("map").hidden) return;
  const end = picture.start + picture.pixels * picture.seconds, now = view();
  drawPicture(canvas, picture);
  if (cursor) drawCursor(canvas, picture, cursor);
  drawLegend(at("legend"), picture, amount);
  const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => local(picture.start + part * (end - picture.start)).slice(5, 16));
  at("times").replaceChildren(...marks.map((words) => Object.assign(document.createElement("span"), { textContent: words })));
  at("line").hidden = !line;
  if (line) drawLine(at("line"), line, `${now.target}: largest ${amount(Math.max(0, ...line.values))} in ${line.seconds} s`);
  at("title").textContent = `${picture.system} ${picture.dataset}, ${local(picture.start)} to ${local(end)} ${systems.timezone}, ` +
    `${picture.columns.length} targets, largest value in ${picture.seconds} s${now.live ? ", live" : ""}`;
  at("targets").replaceChildren(...picture.columns.map((name) => Object.assign(document.createElement("option"), { value: name })));
  if (at("numbers").open) numbers();
  canvas.dataset.drawn = String(number);
}

function numbers() {
  const body = counted(picture).map(({ name, largest, states }) =>
    [name, largest > 1 ? `at least ${amount(valueOf(largest, picture.scale))}` : largest ? "0" : "-", ...STATES.map((state) => states[state] ?? 0)]);
  rows(at("table"), ["target", "largest value", ...STATES], body);
}

function read() {
  const { pixel, column } = cursor, cell = pixel * picture.columns.length + column;
  const time = picture.start + pixel * picture.seconds, state = stateOf(picture.levels[cell], picture.flags[cell]);
  const level = picture.levels[cell], isLast = level === 255;
  const value = level > 1 ? `, at least ${amount(valueOf(level, picture.scale))}${isLast ? "" : ` and below ${amount(valueOf(level + 1, picture.scale))}`}` : "";
  const why = picture.why.filter((one) => one.start < time + picture.seconds && time < one.end && (state === "lost") === (one.state === "lost"));
  const reason = state !== "zero" && state !== "value" && why.length ? ` (${why[0].state}: ${why[0].reason || "no attempt yet"})` : "";
  at("readout").textContent = `${picture.columns[column]}, ${local(time)}: ${state}${value}${reason}`;
}

function point(pixel, column) {
  cursor = {
    pixel: Math.min(picture.pixels - 1, Math.max(0, pixel)),
    column: Math.min(picture.columns.length - 1, Math.max(0, column)),
  };
  drawPicture(canvas, picture);
  drawCursor(canvas, picture, cursor);
  read();
}

const cellAt = (event) => [
  Math.floor((event.offsetX * picture.pixels) / canvas.clientWidth),
  Math.floor((event.offsetY * picture.columns.length) / canvas.clientHeight),
];

function span() {
  return [picture.start, picture.start + picture.pixels * picture.seconds];
}

function zoom(factor, middle) {
  const [start, end] = span(), length = Math.min(MAX_SPAN, Math.max(picture.step * 12, (end - start) * factor));
  const left = Math.round(middle - ((middle - start) * length) / (end - start));
  go({ start: left, end: Math.round(left + length) });
}

function move(direction) {
  const [start, end] = span(), by = Math.round((direction * (end - start)) / 2);
  go({ start: start + by, end: end + by });
}

// ---- the other views

function showSystems() {
  rows(at("systemtable"), ["system", "newest file", "datasets"], systems.systems.map((one) => {
    const links = document.createElement("span");
    links.append(...one.datasets.map(({ name }) => button(name, () => go({ view: "map", system: one.name, dataset: name, target: "" }))));
    return [one.name, one.day || "none", links];
  }));
  rows(at("sourcetable"), ["source", "system", "state", "lag", "gaps", "lost", "today"], systems.sources.map((one) => [
    one.name, one.system, `${one.trouble || one.state}${one.reason ? `: ${one.reason}` : ""}`, one.lag === null ? "-" : `${one.lag} s`,
    `${one.gaps.seconds} s`, `${one.gaps.lost} s`, one.today && one.today.due ? `${Math.floor((100 * one.today.stored) / one.today.due)} %` : "-",
  ]));
}

async function showGaps() {
  const found = await json("/api/v1/gaps", { start: "-7d" }), start = found.time - 7 * DAY;
  const names = [...new Set(systems.sources.map((one) => one.name))], axis = at("axis"), high = 20;
  axis.setAttribute("viewBox", `0 0 1000 ${high * names.length}`);
  axis.replaceChildren();
  const add = (kind, attributes, title) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (title) made.append(Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: title }));
    axis.append(made);
  };
  names.forEach((_, row) => add("line", { x1: 0, x2: 1000, y1: row * high, y2: row * high }));
  for (const gap of found.gaps) {
    const from = Math.max(gap.start, start), x = ((from - start) * 1000) / (7 * DAY);
    const width = Math.max(1, ((gap.end - from) * 1000) / (7 * DAY));
    const text = `${gap.source}: ${gap.state}, ${local(gap.start)} to ${local(gap.end)}, ${gap.reason || "no attempt yet"}`;
    add("rect", { x, width, y: names.indexOf(gap.source) * high + 2, height: high - 4, class: gap.state }, text);
  }
  at("gapspan").textContent = `${local(start)} to ${local(found.time)} ${systems.timezone}: ` +
    `${found.gaps.length ? `${found.gaps.length} gaps` : "no gaps"}; from top to bottom ${names.join(", ")}`;
  rows(at("gaptable"), ["source", "start", "end", "state", "reason"], found.gaps.map((gap) =>
    [gap.source, local(gap.start), local(gap.end), gap.state, gap.reason || "no attempt yet"]));
}

// ---- everything

function options(select, names, chosen) {
  select.replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name, textContent: name })));
  select.value = chosen;
}

async function show() {
  const now = view();
  for (const name of ["map", "systems", "gaps"]) at(name).hidden = name !== now.view;
  for (const one of document.querySelectorAll("[data-view]")) {
    one.dataset.view === now.view ? one.setAttribute("aria-current", "page") : one.removeAttribute("aria-current");
  }
  fail(null);
  options(at("system"), systems.systems.map((one) => one.name), now.system);
  options(at("dataset"), (systems.systems.find((one) => one.name === now.system)?.datasets ?? []).map((one) => one.name), now.dataset);
  at("search").value = now.target;
  const trouble = systems.sources.filter((one) => one.trouble).map((one) => `${one.name} ${one.trouble}`);
  at("state").textContent = `${feed ? "live" : "no messages from the daemon"}${trouble.length ? `; ${trouble.join(", ")}` : ""}`;
  try {
    if (now.view === "map") await load();
    if (now.view === "systems") showSystems();
    if (now.view === "gaps") await showGaps();
  } catch (error) {
    fail(error);
  }
}

async function refresh() {
  try {
    systems = await json("/api/v1/systems");
  } catch (error) {
    if (!systems) throw error;
    return fail(error);
  }
  await show();
}

function follow() {
  events = new EventSource("/api/v1/events");
  events.addEventListener("hello", ({ data }) => ((feed = JSON.parse(data).feed), refresh()));
  events.addEventListener("feed", ({ data }) => ((feed = JSON.parse(data).feed), refresh()));
  events.addEventListener("reset", refresh);
  events.addEventListener("changed", ({ data }) => {
    const change = JSON.parse(data), now = view();
    if (now.view !== "map" || change.system !== now.system || change.dataset !== now.dataset) return;
    if (!picture || !change.span || now.live || (change.span[0] < span()[1] && span()[0] <= change.span[1])) load();
  });
}

const KEYS = {
  ArrowLeft: () => point((cursor?.pixel ?? picture.pixels) - 1, cursor?.column ?? 0),
  ArrowRight: () => point((cursor?.pixel ?? -1) + 1, cursor?.column ?? 0),
  ArrowUp: () => point(cursor?.pixel ?? 0, (cursor?.column ?? 1) - 1),
  ArrowDown: () => point(cursor?.pixel ?? 0, (cursor?.column ?? -1) + 1),
  Enter: () => cursor && go({ target: picture.columns[cursor.column] }),
  Escape: () => go({ target: "", live: 10800 }),
  "+": () => zoom(0.5, cursor ? picture.start + cursor.pixel * picture.seconds : (span()[0] + span()[1]) / 2),
  "-": () => zoom(2, (span()[0] + span()[1]) / 2),
};

canvas.addEventListener("keydown", (event) => {
  if (!picture || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener("pointerdown", (event) => ((drag = event.offsetX), canvas.setPointerCapture(event.pointerId)));
canvas.addEventListener("pointermove", (event) => {
  if (!picture) return;
  point(...cellAt(event));
  const ratio = canvas.width / canvas.clientWidth;
  if (drag !== null && Math.abs(event.offsetX - drag) > 5) drawSelection(canvas, drag * ratio, event.offsetX * ratio);
});
canvas.addEventListener("pointerup", (event) => {
  const from = drag;
  drag = null;
  if (!picture || from === null) return;
  if (Math.abs(event.offsetX - from) <= 5) return go({ target: picture.columns[cellAt(event)[1]] ?? "" });
  const [start, end] = span(), [left, right] = [from, event.offsetX].sort((one, two) => one - two);
  const time = (x) => Math.round((start + ((end - start) * x) / canvas.clientWidth) / picture.step) * picture.step;
  go({ start: time(left), end: Math.max(time(right), time(left) + picture.step) });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(event.target.tagName) && !at("map").hidden) {
    event.preventDefault();
    at("search").focus();
  }
});
for (const one of document.querySelectorAll("[data-view]")) one.addEventListener("click", () => go({ view: one.dataset.view }));
for (const one of document.querySelectorAll("[data-live]")) one.addEventListener("click", () => go({ live: Number(one.dataset.live) }));
for (const one of document.querySelectorAll("[data-move]")) one.addEventListener("click", () => picture && move(Number(one.dataset.move)));
for (const one of document.querySelectorAll("[data-zoom]")) {
  one.addEventListener("click", () => picture && zoom(Number(one.dataset.zoom), (span()[0] + span()[1]) / 2));
}
at("choice").addEventListener("submit", (event) => event.preventDefault());
at("system").addEventListener("change", () => go({ system: at("system").value, dataset: "", target: "" }));
at("dataset").addEventListener("change", () => go({ dataset: at("dataset").value, target: "" }));
at("search").addEventListener("change", () => go({ target: at("search").value }));
at("numbers").addEventListener("toggle", () => picture && at("numbers").open && numbers());
addEventListener("popstate", show);
// A page that the browser keeps for "back" would keep its connection, of which it allows six.
addEventListener("pagehide", () => events?.close());
addEventListener("pageshow", ({ persisted }) => persisted && follow());
new ResizeObserver(() => draw()).observe(at("map"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

refresh().then(follow).catch(fail);
