// The page: its state is the URL. It follows the events of what is stored, and finds its way back after a cut, a sleep or a restart.

import { json, refusalOf } from "./api.js";
import { showCalendar } from "./calendar.js";
import { drawGaps, showGaps } from "./gaps.js";
import { showJobs } from "./jobs.js";
import { draw, isShown, loadMap, middle, move, numbers, span, startMap, updateMap, zoom } from "./map.js";
import { showStages } from "./stages.js";
import { at, button, duration, make, options, setZone, table } from "./words.js";

const EVENTS = "/api/v1/events";
const VIEWS = ["map", "jobs", "calendar", "systems", "sources", "gaps", "stages"];
const TICK = 5_000, ASLEEP = 20_000, QUIET = 30_000, SLOWLY = 10_000, AGAIN = 3_000, START = 2_000; // ms

let systems = null, events = null, feed = false, isAnswered = true, ticked = Date.now(), heard = Date.now(), waiting = null, known = "", starting = null;
// refused: why there is no stream of events, where a limit is the reason.
let refused = null;

// ---- the URL: view, system, dataset, target, and live=SECONDS or start and end; of jobs by and of; of gaps days; of stages since=SECONDS and source

function view() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  const first = systems.systems.find((one) => one.datasets.length) ?? systems.systems[0];
  const system = systems.systems.find((one) => one.name === given.system) ?? first;
  const names = (system?.datasets ?? []).map((one) => one.name);
  const past = Number(given.start) && Number(given.end) > Number(given.start);
  return {
    view: VIEWS.includes(given.view) ? given.view : "map",
    system: system?.name ?? "",
    dataset: names.includes(given.dataset) ? given.dataset : names.find((name) => name === "datatargets/readbytes") ?? names[0] ?? "",
    target: given.target ?? "",
    days: Math.min(400, Math.max(1, Math.round(Number(given.days)) || 7)),
    by: /^[a-z_]{1,40}$/.test(given.by ?? "") ? given.by : "",
    of: given.of === "user" ? "user" : "",
    since: Math.min(400 * 86400, Math.max(60, Math.round(Number(given.since)) || 3600)),
    source: systems.sources.some((one) => one.name === given.source) ? given.source : "",
    ...(past ? { start: Number(given.start), end: Number(given.end) } : { live: Number(given.live) || 10800 }),
  };
}

function go(changes) {
  const next = { ...view(), ...changes };
  if (changes.live) delete next.start, delete next.end;
  if (changes.start) delete next.live;
  if (next.view !== "jobs") delete next.by, delete next.of;
  if (next.view !== "gaps") delete next.days;
  if (next.view !== "stages") delete next.since, delete next.source;
  history.pushState(null, "", `?${new URLSearchParams(Object.entries(next).filter(([, value]) => value !== ""))}`);
  show();
}

function fail(error) {
  at("error").hidden = !error;
  at("error").textContent = error ? error.message : "";
}

// ---- systems and sources

function showSystems() {
  table(at("systemtable"), ["system", "newest file", "sources", "lag", "gaps", "today", "datasets"], systems.systems.map((one) => {
    const links = make("span", { className: "links" });
    links.append(...one.datasets.map(({ name }) => button(name, () => go({ view: "map", system: one.name, dataset: name, target: "" }))));
    const sources = systems.sources.filter((source) => source.system === one.name), lags = sources.map((source) => source.lag).filter((lag) => lag !== null);
    const days = sources.map((source) => source.today).filter((today) => today?.due);
    const [stored, due] = ["stored", "due"].map((what) => days.reduce((sum, day) => sum + day[what], 0));
    const troubles = sources.filter((source) => source.trouble).map((source) => `${source.name} ${source.trouble}`);
    return [
      one.name, one.fault || one.day || "none", troubles.join(", ") || "all in order", lags.length ? duration(Math.max(...lags)) : "-",
      duration(sources.reduce((sum, source) => sum + source.gaps.seconds, 0)), due ? `${Math.floor((100 * stored) / due)} %` : "-", one.datasets.length ? links : "-",
    ];
  }));
}

function showSources() {
  const head = ["source", "kind", "system", "state", "lag", "gaps", "lost", "today", "windows", "cells/s", "last error"];
  table(at("sourcetable"), head, systems.sources.map((one) => [
    one.name, one.kind, one.system, `${one.trouble || one.state}${one.reason ? `: ${one.reason}` : ""}`, one.lag === null ? "-" : duration(one.lag),
    duration(one.gaps.seconds), duration(one.gaps.lost), one.today?.due ? `${Math.floor((100 * one.today.stored) / one.today.due)} %` : "-",
    one.windows, Math.round(one.cells_per_second), one.last_error || "-",
  ]));
}

// ---- everything

const SHOWN = {
  map: loadMap,
  jobs: () => showJobs(systems.systems, view(), go),
  calendar: () => showCalendar(systems.systems, view().system, go),
  systems: showSystems,
  sources: showSources,
  gaps: () => showGaps(systems.sources, view().days, go),
  stages: () => showStages(systems.sources, view()),
};

function showState() {
  const trouble = systems.sources.filter((one) => one.trouble).map((one) => `${one.name} ${one.trouble}`);
  const how = !isAnswered ? "no answer from tokiod web: what you see is old" : refused ? `not live: ${refused.message}` : feed ? "live" : "no messages from the daemon";
  at("state").textContent = `${how}${trouble.length ? `; ${trouble.join(", ")}` : ""}`;
}

async function show() {
  const now = view();
  delete document.body.dataset.shown;
  for (const name of VIEWS) at(name).hidden = name !== now.view;
  const mark = (selector, isChosen) => {
    for (const one of document.querySelectorAll(selector)) isChosen(one.dataset) ? one.setAttribute("aria-current", "true") : one.removeAttribute("aria-current");
  };
  mark("[data-view]", (data) => data.view === now.view);
  mark("[data-live]", (data) => Number(data.live) === now.live);
  mark("[data-days]", (data) => Number(data.days) === now.days);
  mark("[data-since]", (data) => Number(data.since) === now.since);
  fail(null);
  options(at("system"), systems.systems.map((one) => one.name), now.system);
  options(at("dataset"), (systems.systems.find((one) => one.name === now.system)?.datasets ?? []).map((one) => one.name), now.dataset);
  if (document.activeElement !== at("search")) at("search").value = now.target;
  showState();
  try {
    await SHOWN[now.view]();
  } catch (error) {
    fail(error);
  }
  document.body.dataset.shown = now.view;
}

// Fetch the state of the systems and show everything again; of the map only what time has changed, if all changes were heard.
async function refresh(isAll = true) {
  try {
    systems = await json("/api/v1/systems");
    isAnswered = true;
  } catch (error) {
    isAnswered = false;
    if (!systems) throw error;
    return showState();
  }
  setZone(systems.timezone);
  const before = known;
  known = reasons();
  if (isAll || view().view !== "map" || !isShown() || known !== before) return show();
  showState();
  await updateMap(systems.time, systems.time);
}

// What changes with the reasons for missing cells: no event reports those.
function reasons() {
  return JSON.stringify(systems.sources.map((one) => [one.name, one.trouble, one.gaps.lost, one.last_error]));
}

// The other views and the state of the sources change with each window of each dataset: once in a while is enough.
function refreshSlowly() {
  waiting ??= setTimeout(() => ((waiting = null), refresh(false)), SLOWLY);
}

// Show everything: once the events are heard, so that none is missed, or soon without them.
function start() {
  clearTimeout(starting);
  return refresh().catch((error) => (fail(error), setTimeout(() => location.reload(), AGAIN)));
}

function follow() {
  events?.close();
  events = new EventSource(EVENTS);
  const on = (name, action) => events.addEventListener(name, ({ data }) => ((heard = Date.now()), action(JSON.parse(data))));
  on("hello", (state) => ((feed = state.feed), (refused = null), start()));
  // What is published again may have begun anywhere; a silence changes nothing.
  on("feed", (state) => ((feed = state.feed), systems && (feed ? refresh() : showState())));
  on("reset", () => systems && refresh());
  on("changed", (change) => {
    if (!systems) return;
    const now = view();
    if (now.view !== "map" || (change.system === now.system && change.dataset === "")) return refreshSlowly();
    if (change.system !== now.system || change.dataset !== now.dataset) return;
    if (!isShown() || !change.span) loadMap();
    else if (now.live || (change.span[0] < span()[1] && span()[0] <= change.span[1])) updateMap(change.span[0], change.span[1] + 1);
    refreshSlowly();
  });
  // The browser connects again by itself, but not after an answer that is no stream, such as that of a proxy without its server.
  events.addEventListener("error", ({ target }) => (target.readyState === EventSource.CLOSED && followLater(target), start())); // which says whether there is a server
}

async function followLater(closed) {
  const error = await refusalOf(EVENTS), isLimit = Boolean(error?.retry);
  if (closed !== events) return;
  refused = isLimit ? error : null;
  if (systems) showState();
  setTimeout(() => closed === events && follow(), isLimit ? error.retry * 1000 : AGAIN);
}

// A connection that died during a sleep or in a cut network looks like one on which nothing happens. A stage that is not over grows meanwhile.
function tick() {
  const now = Date.now(), isWoken = now - ticked > ASLEEP;
  ticked = now;
  if (isWoken) {
    heard = now;
    follow();
  } else if (systems && now - heard > (view().view === "stages" ? SLOWLY : QUIET)) {
    heard = now;
    const wasAnswered = isAnswered;
    refresh().then(() => !wasAnswered && isAnswered && follow());
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(event.target.tagName) && !at("map").hidden) {
    event.preventDefault();
    at("search").focus();
  }
});
const each = (name, action) => {
  for (const one of document.querySelectorAll(`[data-${name}]`)) one.addEventListener("click", () => action(one.dataset[name]));
};
each("view", (name) => go({ view: name }));
each("live", (seconds) => go({ live: Number(seconds) }));
each("days", (days) => go({ days: Number(days) }));
each("since", (seconds) => go({ since: Number(seconds) }));
each("move", (direction) => isShown() && move(Number(direction)));
each("zoom", (factor) => isShown() && zoom(Number(factor), middle()));
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
at("system").addEventListener("change", () => go({ system: at("system").value, dataset: "", target: "" }));
at("daysystem").addEventListener("change", () => go({ system: at("daysystem").value, dataset: "", target: "" }));
at("jobsystem").addEventListener("change", () => go({ system: at("jobsystem").value, dataset: "", target: "", by: "" }));
at("jobby").addEventListener("change", () => go({ by: at("jobby").value }));
at("jobof").addEventListener("change", () => go({ of: at("jobof").value }));
at("stagesource").addEventListener("change", () => go({ source: at("stagesource").value }));
at("dataset").addEventListener("change", () => go({ dataset: at("dataset").value, target: "" }));
at("search").addEventListener("change", () => go({ target: at("search").value }));
at("numbers").addEventListener("toggle", () => at("numbers").open && numbers());
addEventListener("popstate", show);
addEventListener("online", () => systems && follow());
// A page that the browser keeps for "back" would keep its connection, of which it allows six.
addEventListener("pagehide", () => events?.close());
addEventListener("pageshow", ({ persisted }) => persisted && follow());
const redraw = () => (draw(), drawGaps());
addEventListener("resize", drawGaps);
addEventListener("beforeprint", redraw);
addEventListener("afterprint", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(tick, TICK);

startMap({ view, go, systems: () => systems, fail });
follow();
starting = setTimeout(start, START);
