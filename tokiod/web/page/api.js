// The API under /api/v1: JSON, and the pictures of docs/web.md.

export const MISSING = 1, LOST = 2, NOT_DUE = 4;
const ATTEMPTS = 10;

// Pages behind one address share the requests that it may send: each waits for its turn.
async function answered(path, parameters, signal = null) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch(url, { signal });
    if (answer.ok) return answer;
    const { error } = await answer.json(), retry = Number(answer.headers.get("Retry-After"));
    if (error.type !== "too_many_requests" || attempt === ATTEMPTS) throw Object.assign(new Error(error.message), { type: error.type, retry });
    await new Promise((resume) => setTimeout(resume, 1000 * retry * (0.5 + Math.random())));
  }
}

export async function json(path, parameters = {}) {
  return (await answered(path, parameters)).json();
}

// Why a stream is refused, and after how many seconds to try again: an EventSource reports neither. null: it is not refused.
export async function refusalOf(path) {
  const stop = new AbortController();
  try {
    await answered(path, {}, stop.signal);
    return null;
  } catch (error) {
    return error;
  } finally {
    stop.abort();
  }
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
