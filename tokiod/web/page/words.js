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
  const [base, names] = units.startsWith("bytes") ? [1024, BINARY] : [1000, DECIMAL];
  let power = 0;
  while (value >= base && power < names.length - 1) (value /= base), power++;
  return `${Number(value.toPrecision(3))} ${names[power]}${units}`.trim();
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

export function table(place, head, body) {
  place.replaceChildren();
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
