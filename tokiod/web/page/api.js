// The API under /api/v1: JSON, and the pictures of docs/web.md.

export const MISSING = 1, LOST = 2, NOT_DUE = 4;

async function answered(path, parameters) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const answer = await fetch(url);
  if (!answer.ok) {
    const { error } = await answer.json();
    throw Object.assign(new Error(error.message), { type: error.type });
  }
  return answer;
}

export async function json(path, parameters = {}) {
  return (await answered(path, parameters)).json();
}

export async function matrix(parameters) {
  const body = await (await answered("/api/v1/matrix", parameters)).arrayBuffer();
  const length = new DataView(body).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 8, length)));
  const cells = header.pixels * header.columns.length;
  return { ...header, levels: new Uint8Array(body, 8 + length, cells), flags: new Uint8Array(body, 8 + length + cells, cells) };
}

// The least value that a level stands for.
export function valueOf(level, { lowest_log2, per_octave, first }) {
  return 2 ** (lowest_log2 + (level - first) / per_octave);
}

export function stateOf(level, flags) {
  if (level > 1) return flags & (MISSING | LOST) ? "value, partly missing" : "value";
  if (level === 1) return "zero";
  if (flags & LOST) return "lost";
  return flags & MISSING ? "missing" : "not yet due";
}
