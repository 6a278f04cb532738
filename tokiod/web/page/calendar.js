// The days of a system, month by month. A day is filled as far as it is stored; what is lost has red crosses, and both are in words.

import { json } from "./api.js";
import { at, button, duration, local, make, options, replaced, zoneName } from "./words.js";

const DAYS = 366;

export async function showCalendar(systems, system, go) {
  options(at("daysystem"), systems.map((one) => one.name), system);
  const found = await json("/api/v1/days", { system, start: `-${DAYS}d` });
  const days = together(found.days);
  const known = days.filter((day) => day.due || day.stored);
  const first = known.length ? known[0].date.slice(0, 7) : days.at(-1)?.date.slice(0, 7) ?? "";
  const months = new Map();
  for (const day of days.filter((one) => one.date >= first)) {
    const month = day.date.slice(0, 7);
    months.set(month, [...(months.get(month) ?? []), day]);
  }
  replaced(at("months"), JSON.stringify([system, ...months]), () =>
    at("months").append(...[...months].reverse().map(([month, ones]) => drawn(month, ones, system, go))));
  at("dayspan").textContent = known.length
    ? `${known.length === 1 ? "1 day" : `${known.length} days`} up to ${local(found.time)} ${zoneName()}. A day shows how much of what was due is stored; a click opens it.`
    : "Nothing is due or stored yet.";
}

// All sources of a day. Sources of a watched folder are due whenever files come, so they don't count.
function together(lines) {
  const days = new Map();
  for (const line of lines) {
    const day = days.get(line.date) ?? { date: line.date, start: line.start, end: line.end, stored: 0, due: 0, lost: 0 };
    if (line.due !== null) (day.stored += Math.min(line.stored, line.due)), (day.due += line.due);
    day.lost += line.lost;
    days.set(line.date, day);
  }
  return [...days.values()];
}

function drawn(month, days, system, go) {
  const grid = make("div", { className: "month" });
  for (const name of ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"]) grid.append(make("span", { className: "weekday", textContent: name, ariaHidden: "true" }));
  const before = (new Date(`${days[0].date}T00:00:00Z`).getUTCDay() + 6) % 7;
  for (let count = 0; count < before; count++) grid.append(make("span"));
  for (const day of days) grid.append(cell(day, system, go));
  return make("section", { className: "monthbox", ariaLabel: month }, make("h3", { textContent: month }), grid);
}

function cell(day, system, go) {
  const number = Number(day.date.slice(8)), part = day.due ? day.stored / day.due : 0, missing = day.due - day.stored - day.lost;
  const percent = day.due ? `${Math.floor(100 * part)} %` : "-";
  const words = day.due
    ? [" stored", ...(day.lost ? [`${duration(day.lost)} lost`] : []), ...(missing > 0 ? [`${duration(missing)} missing`] : [])].join(", ")
    : " nothing due";
  const made = button("", () => go({ view: "map", system, start: day.start, end: day.end }), {
    className: `day${day.lost ? " lost" : ""}${missing > 0 ? " missing" : ""}${day.due ? "" : " none"}`, ariaLabel: `${number} ${percent}${words}; ${day.date}`, title: `${percent}${words}`,
  });
  made.style.setProperty("--part", String(part));
  made.append(make("span", { className: "date", textContent: String(number) }), " ", make("span", { className: "percent", textContent: percent }));
  return made;
}
