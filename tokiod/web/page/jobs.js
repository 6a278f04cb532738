// The jobs, or users, with the largest rates in the span of the view. Job ids are text that users choose: never markup.

import { json } from "./api.js";
import { amount, at, button, local, make, options, table, zoneName } from "./words.js";

const AGAIN_MS = 1000, ATTEMPTS = 20, NAMED = 3;
const MARGIN = 600; // seconds of the map before and after a job
let number = 0;

export async function showJobs(systems, { system, by, of, live, start, end }, go) {
  const mine = ++number;
  options(at("jobsystem"), systems.map((one) => one.name), system);
  at("jobof").value = of || "job";
  const span = live ? { start: `-${live}s` } : { start: Math.floor(start), end: Math.ceil(end) };
  let found;
  try {
    found = await patiently({ system, ...(by ? { by } : {}), of: of || "job", ...span }, () => mine === number);
  } catch (error) {
    if (mine !== number) return;
    at("jobspan").textContent = error.type === "no_job_table" || error.type === "no_data" ? error.message : "";
    table(at("jobtable"), [], []);
    at("jobsort").hidden = at("joblines").hidden = true;
    if (!at("jobspan").textContent) throw error;
    return;
  }
  if (found && mine === number) shown(found, go);
}

// One list is read at a time.
async function patiently(parameters, isCurrent) {
  for (let attempt = 1; isCurrent(); attempt++) {
    try {
      return await json("/api/v1/jobs", parameters);
    } catch (error) {
      if (error.type !== "busy" || attempt >= ATTEMPTS) throw error;
      await new Promise((resume) => setTimeout(resume, AGAIN_MS));
    }
  }
}

function shown(found, go) {
  const { lines, left_off: left, known, by, units, users } = found;
  at("jobsort").hidden = false;
  options(at("jobby"), known.includes(by) ? known : [by, ...known], by);
  at("joblines").hidden = users === "no";
  const ofUsers = at("jobof").value === "user" && users !== "no", hasUsers = users !== "no" && !ofUsers;
  const isOfNodes = found.of === "nodes";
  const last = isOfNodes ? `of local disks; ${by} ${sortedBy(found.total, units)}` : `metadata ${operations(found.metadata)}`;
  const all = `read ${rate(found.read_bytes)}, written ${rate(found.write_bytes)}, ${last}`;
  at("jobspan").textContent = `${local(found.start)} to ${local(found.end)} ${zoneName()}: ${all}. ` +
    (lines.length ? left ? `${left} more have a rate.` : "" : "No job has done anything by this.");
  const own = isOfNodes ? !["cpu", "memory", "disk", "read", "write"].includes(by) : units === "operations/s" && by !== "metadata";
  const figures = isOfNodes ? ["cores", "memory", "read", "written"] : ["read", "written", "metadata"];
  const head = [ofUsers ? "user" : "job", ...(hasUsers ? ["user"] : []), ...(ofUsers ? ["jobs"] : ["nodes"]), ...figures, ...(own ? [by] : []), "share", isOfNodes ? "busiest" : "targets"];
  table(at("jobtable"), lines.length ? head : [], lines.map((one) => {
    const name = ofUsers ? one.user || "unknown" : nameOf(one);
    const link = button(name, () => go({ view: "map", ...around(one, found) }), { ariaLabel: `${name}: show ${local(one.since)} to ${local(one.until)} on the map` });
    return [
      link, ...(hasUsers ? [one.user || "-"] : []), ofUsers ? one.jobs : one.nodes || "-",
      ...(isOfNodes ? [(one.rates.cpu_usecs / 1e6 || 0).toFixed(2), amount(one.rates.mem_bytes || 0, "bytes")] : []), rate(one.read_bytes), rate(one.write_bytes),
      ...(isOfNodes ? [] : [operations(one.metadata)]), ...(own ? [sortedBy(one.rate, units)] : []), shareOf(one), targets(one, isOfNodes),
    ];
  }));
}

const rate = (value) => amount(value, "bytes/sec"), operations = (value) => amount(value, "/s");
const SHOWN = { "bytes/s": "bytes/sec", "operations/s": "/s" };
const sortedBy = (value, units) => (units === "cores" ? `${value.toFixed(2)} cores` : amount(value, SHOWN[units] ?? units));
const nameOf = ({ job, command, id }) => job || (command ? `${command} (no job)` : id ? `#${id}` : "(no job)");

function targets({ busiest, targets: count }, areNodes) {
  const chosen = busiest.slice(0, NAMED).filter(({ share }) => share >= 0.01);
  const named = chosen.map(({ target, share }) => `${areNodes ? target : target.slice(target.lastIndexOf("-") + 1)} ${Math.round(100 * share)} %`);
  return [...named, ...(count > named.length ? [`${count - named.length} more`] : [])].join(", ");
}

function shareOf({ share }) {
  const text = `${(100 * share).toFixed(1)} %`, bar = make("span", { className: "share" }, make("span", { textContent: text }));
  bar.style.setProperty("--part", String(share));
  return bar;
}

// The time of a job, as far as it is known, with some before and after it; a month at most.
function around({ since, until }, { end }) {
  const from = Math.max(since, end - 30 * 86400);
  return { start: Math.floor(from - MARGIN), end: Math.ceil(Math.max(until, from + 1) + MARGIN) };
}
