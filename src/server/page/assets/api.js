// The server's API, as the page uses it. Paths are relative, so that the page works behind any prefix.
import { apiKey } from "./settings.js";

const headers = () => {
  const key = apiKey();
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
};

const problemOf = async (response) => {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch { /* no JSON: the status says enough */ }
  const problem = new Error(error.message ?? `The server answered ${response.status}.`);
  Object.assign(problem, { status: response.status, code: error.code });
  return problem;
};

const ask = async (path, options = {}) => {
  const response = await fetch(path, { headers: headers(), cache: "no-store", ...options });
  if (!response.ok) throw await problemOf(response);
  return response;
};

export const getJson = async (path) => (await ask(path)).json();

// Yields each event's JSON.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.search(/\r?\n\r?\n/)) >= 0; text = text.slice(end).replace(/^(\r?\n){2}/, "")) {
      const data = text.slice(0, end).split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

// The answer runs in the background on the server, so that it outlives a reload of the page.
export const beginAnswer = async (request, signal) =>
  events((await ask("v1/responses", { method: "POST", signal, body: JSON.stringify({ ...request, stream: true, background: true }) })).body);

// The events behind number `last` of an answer that runs already.
export const followAnswer = async (id, last, signal) =>
  events((await ask(`v1/responses/${id}?stream=true${last >= 0 ? `&starting_after=${last}` : ""}`, { signal })).body);

// "in_progress", "completed", "cancelled", "failed".
export const statusOf = async (id) => (await getJson(`v1/responses/${id}`)).status;

export const cancelAnswer = (id) => ask(`v1/responses/${id}/cancel`, { method: "POST", body: "{}" });
