// The server's API, as the page uses it. Paths are relative, so that the page works behind any prefix.
import { apiKey } from "./store.js";

const headers = () => {
  const key = apiKey();
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
};

const problemOf = async (response) => {
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error?.message ?? message;
  } catch { /* no JSON: the status says enough */ }
  const problem = new Error(message);
  problem.status = response.status;
  return problem;
};

export const getJson = async (path) => {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw await problemOf(response);
  return response.json();
};

// Yields the data of each event.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.search(/\r?\n\r?\n/)) >= 0; text = text.slice(end).replace(/^(\r?\n){2}/, "")) {
      const data = text.slice(0, end).split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
  }
}

// Calls onDelta({content, reasoning}) for each piece; resolves to {finish, usage}.
export const streamChat = async (request, signal, onDelta) => {
  const response = await fetch("v1/chat/completions", {
    method: "POST", headers: headers(), signal, body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
  });
  if (!response.ok) throw await problemOf(response);
  let finish = null, usage = null;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    usage = chunk.usage ?? usage;
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    finish = choice.finish_reason ?? finish;
    const reasoning = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
    const content = choice.delta?.content ?? "";
    if (reasoning || content) onDelta({ content, reasoning });
  }
  return { finish, usage };
};
