// Text and tables. Names of targets and reasons are text, never markup.

export const at = (id) => document.getElementById(id);
export const make = (kind, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
};

let zone = "UTC";
export const setZone = (name) => (zone = name);
export const zoneName = () => zone;
// The site's time, as 2018-01-28 08:00:00.
export const local = (time) => new Date(time * 1000).toLocaleString("sv-SE", { timeZone: zone });
export const localDate = (time) => local(time).slice(0, 10);

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], DECIMAL = ["", "k", "M", "G", "T", "P", "E"];

export function amount(value, units) {
  if (units === "%") return `${Number(value.toPrecision(3))} %`;
  const isBytes = units.startsWith("bytes"), [base, names] = isBytes ? [1024, BINARY] : [1000, DECIMAL];
  const word = units.replace(/^bytes/, "B").replace(/\/sec$/, "/s");
  let power = 0;
  while (value >= base && power < names.length - 1) (value /= base), power++;
  return `${Number(value.toPrecision(3))} ${names[power]}${word}`.trim();
}

export function duration(seconds) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= 2 * size) ?? [1, "s"];
  return `${Math.round(seconds / size)} ${unit}`;
}

export function button(word, action, properties = {}) {
  const made = make("button", { type: "button", textContent: word, ...properties });
  made.addEventListener("click", action);
  return made;
}

// Show other content in a place, if it is other. The focus stays on the button with the same words for a screen reader.
export function replaced(place, key, content) {
  if (place.dataset.key === key) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.ariaLabel ?? document.activeElement.textContent : null;
  place.dataset.key = key;
  place.replaceChildren();
  content();
  if (focused) [...place.querySelectorAll("button")].find((one) => (one.ariaLabel ?? one.textContent) === focused)?.focus();
}

export function table(place, head, body) {
  const texts = body.map((words) => words.map((word) => (word instanceof Node ? word.textContent + (word.ariaLabel ?? "") : word)));
  replaced(place, JSON.stringify([head, texts]), () => filled(place, head, body));
}

function filled(place, head, body) {
  place.createTHead().insertRow().append(...head.map((word) => make("th", { scope: "col", textContent: word })));
  const rest = place.createTBody();
  for (const words of body) {
    const row = rest.insertRow();
    for (const [column, word] of words.entries()) {
      const cell = row.insertCell();
      cell.dataset.label = head[column];
      cell.append(word instanceof Node ? word : String(word));
      if (cell.textContent.length > 40) cell.className = "text";
    }
  }
}

export function options(select, names, chosen, empty = "") {
  select.replaceChildren(...names.map((name) => make("option", { value: name, textContent: name || empty })));
  select.value = chosen;
}

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const STEPS = [1, 5, 10, 30, MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 56 * DAY];
const TICK_ROOM = 90; // pixels
// Seconds that the site's clocks are ahead of UTC.
const ahead = (time) => Date.parse(`${local(time).replace(" ", "T")}Z`) / 1000 - Math.floor(time);

// The times below an axis: round ones of the site, as many as there is room for.
export function ticks(place, start, end) {
  const room = Math.max(2, Math.floor(place.clientWidth / TICK_ROOM)), step = STEPS.find((one) => (end - start) / one <= room) ?? STEPS.at(-1);
  const texts = [];
  for (let wall = Math.ceil((start + ahead(start)) / step) * step; ; wall += step) {
    const time = wall - ahead(wall - ahead(start));
    if (time >= end) break;
    const text = local(time), isMidnight = text.endsWith("00:00:00"), clock = step < MINUTE ? text.slice(11) : text.slice(11, 16);
    const word = step >= DAY ? text.slice(texts.length ? 5 : 0, 10) : texts.length && !isMidnight ? clock : isMidnight ? text.slice(5, 10) : `${text.slice(5, 10)} ${clock}`;
    const tick = make("span", { textContent: word });
    tick.style.left = `${(100 * (time - start)) / (end - start)}%`;
    if (time >= start && (end - time) / (end - start) > 0.02) texts.push(tick);
  }
  place.replaceChildren(...texts);
}
