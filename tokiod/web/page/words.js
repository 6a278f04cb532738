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
    for (const word of words) {
      const cell = row.insertCell();
      cell.append(word instanceof Node ? word : String(word));
      if (cell.textContent.length > 40) cell.className = "text";
    }
  }
}

export function options(select, names, chosen) {
  select.replaceChildren(...names.map((name) => make("option", { value: name, textContent: name })));
  select.value = chosen;
}

// The times below an axis, as many as there is room for. Time by time they have the same distance.
export function ticks(place, start, end) {
  const count = Math.max(2, Math.min(7, Math.floor(place.clientWidth / 110)));
  const texts = Array.from({ length: count }, (_, index) => local(start + (index * (end - start)) / (count - 1)));
  place.replaceChildren(...texts.map((text) => make("span", { textContent: end - start > 3 * 86400 ? text.slice(0, 10) : text.slice(5, 16) })));
}
