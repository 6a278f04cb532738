// Where the time of windows and rewritten files went: a stacked bar for each of the slowest, and a table of all.
// A stage has a letter and a colour, those of `tokioctl stages`: the letters are the same in print and for colour-blind users.

import { json } from "./api.js";
import { at, button, local, make, options, replaced, table, zoneName } from "./words.js";

const SLOWEST = 30;
const STAGES = [
  ["due", "d", "#bbbbbb"], ["ask", "a", "#999999"], ["fetch", "f", "#0072b2"], ["parse", "p", "#56b4e9"], ["submit", "u", "#f0e442"],
  ["bus", "b", "#e69f00"], ["apply", "w", "#009e73"], ["sync", "s", "#d55e00"], ["ledger", "l", "#cc79a7"], ["ack", "k", "#ddaa77"],
  ["feed", "e", "#777777"], ["make", "m", "#332288"], ["grow", "g", "#88ccee"], ["reopen", "r", "#44aa99"], ["seal", "z", "#ddcc77"],
  ["convert", "c", "#aa4499"],
];
const LOOKS = new Map(STAGES.map(([name, letter, colour]) => [name, { letter, colour }]));
const WHITE_ON = new Set(["fetch", "feed", "make", "convert"]);

export async function showStages(sources, { since, source }) {
  options(at("stagesource"), ["", ...sources.map((one) => one.name)], source, "all");
  const found = await json("/api/v1/stages", { start: `-${since}s`, slowest: SLOWEST, ...(source ? { source } : {}) });
  const { slowest, count } = found;
  at("stagespan").textContent = count
    ? `${count} windows and files ended since ${local(found.start)} ${zoneName()}${count > slowest.length ? `; the ${slowest.length} that took longest are drawn` : ""}, oldest first.`
    : `No window or file ended since ${local(found.start)} ${zoneName()}. The daemon records while it runs, until the machine is booted again.`;
  at("stagekey").hidden = at("stageread").hidden = at("bars").hidden = at("stagetable").hidden = !count;
  replaced(at("bars"), JSON.stringify(slowest), () => drawn(slowest));
  const seen = new Set(slowest.flatMap((one) => one.stages.map(({ stage }) => stage)));
  replaced(at("stagekey"), [...seen].join(), () => at("stagekey").append(...STAGES.filter(([name]) => seen.has(name)).map(([name]) =>
    make("li", {}, swatch(name), make("span", { textContent: name })))));
  table(at("stagetable"), ["stage", "n", "median", "p95", "max", "share"], found.stages.map((one) => [
    one.stage, one.n, lasted(one.median), lasted(one.p95), lasted(one.max), one.stage === "feed" ? "-" : `${(100 * one.share).toFixed(1)} %`,
  ]));
}

// Three digits, as `tokioctl stages` has them.
function lasted(seconds) {
  const [amount, unit] = seconds >= 0.9995 ? [seconds, "s"] : [seconds * 1000, "ms"];
  return `${amount.toFixed(amount < 10 ? 2 : amount < 100 ? 1 : 0)} ${unit}`;
}

// Of the waiting of a healed window, as much is drawn as the window is long: the seconds beyond that.
function healing({ stages: [first], start, end }) {
  return first.stage === "due" ? Math.max(0, first.seconds - (end - start)) : 0;
}

function drawn(works) {
  const longest = Math.max(...works.map((work) => work.seconds - healing(work)), 1e-6);
  const head = ["source", "window or day", "state", "time", ""];
  at("bars").createTHead().insertRow().append(...head.map((word) => make("th", { scope: "col", textContent: word || "stages" })));
  const body = at("bars").createTBody();
  for (const work of works) {
    const row = body.insertRow(), words = work.stages.map(({ stage, seconds, open }) => `${stage} ${lasted(seconds)}${open ? ", not over" : ""}`).join(", ");
    const tell = () => (at("stageread").textContent = `${work.name} ${local(work.start)}: ${words}; ${lasted(work.seconds)} in all, ${work.state}`);
    const bar = make("div", { className: "bar", role: "img", ariaLabel: words }, ...parts(work, longest));
    row.append(
      make("td", { textContent: work.name, className: "name" }), make("td", {}, button(local(work.start).slice(5), tell, { title: "Show the stages in numbers" })),
      make("td", { textContent: work.state, className: work.state === "failed" ? "bad" : "" }), make("td", { textContent: lasted(work.seconds), className: "number" }),
      make("td", { className: "barcell" }, bar),
    );
    row.addEventListener("pointerenter", tell);
  }
}

function parts(work, longest) {
  const beyond = healing(work);
  return work.stages.map(({ stage, seconds, open }) => {
    const part = swatch(stage, seconds - (stage === "due" ? beyond : 0), longest);
    if (open) part.classList.add("open");
    if (stage === "due" && beyond) part.firstChild.textContent = "<";
    return part;
  });
}

function swatch(stage, seconds = null, longest = 1) {
  const { letter, colour } = LOOKS.get(stage) ?? { letter: "?", colour: "#fff" };
  const made = make("span", { className: "stage", ariaHidden: "true" }, make("span", { textContent: letter }));
  made.style.setProperty("--colour", colour);
  made.style.setProperty("--ink", WHITE_ON.has(stage) ? "#fff" : "#000");
  if (seconds !== null) made.style.setProperty("--part", String(seconds / longest));
  return made;
}
