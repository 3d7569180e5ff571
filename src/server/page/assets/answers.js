// Running answers: begun, followed after a reload or a lost connection, stopped. A message's `state` is "running",
// "done", "stopped" or "interrupted"; `response` is the server's id of the answer, and `last` the number of its last
// event that the message contains.
import { beginAnswer, cancelAnswer, followAnswer, statusOf } from "./api.js";
import { saveConversation } from "./conversations.js";
import { addMessage, dropMessage } from "./tree.js";

const reading = new Map();  // message id -> {abort, stopped}
const tries = 5, patience = 60000;

export const isRunning = (message) => message?.state === "running";
export const isRead = (message) => reading.has(message.id);

const noteOf = (response, began, first) => {
  const tokens = response?.usage?.output_tokens;
  const parts = [];
  if (tokens > 1 && first) parts.push(`${tokens} tokens, ${((tokens - 1) / ((performance.now() - first) / 1000)).toFixed(1)}/s`);
  else if (tokens) parts.push(`${tokens} tokens`);
  if (first) parts.push(`first after ${((first - began) / 1000).toFixed(2)} s`);
  if (response?.status === "incomplete") parts.push("cut at the longest answer");
  return parts.join(" · ");
};

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Takes events until the last one; false: the stream broke off.
const take = async (events, message, reader, changed) => {
  const began = performance.now();
  let first = null;
  for await (const event of events) {
    if (event.error && !event.type) throw Object.assign(new Error(event.error.message), { final: true });
    if (event.type === "response.created") {
      message.response = event.response.id;
      reader.save();
      if (reader.stopped) await cancelAnswer(message.response);
    } else if (event.type === "response.output_text.delta") {
      message.content += event.delta;
    } else if (event.type === "response.reasoning_text.delta") {
      message.reasoning = (message.reasoning ?? "") + event.delta;
    }
    message.last = event.sequence_number;
    if (event.delta) {
      if (reader.begun) first ??= performance.now();
      changed();
    }
    if (event.type === "response.completed" || event.type === "response.incomplete") {
      message.note = noteOf(event.response, began, first);
      return true;
    }
  }
  return false;
};

// Reads to the end, over lost connections. Throws the problem that ends it.
const readAll = async (request, message, reader, changed) => {
  for (let lost = 0; ; ) {
    try {
      const known = message.response !== undefined;
      const events = known ? followAnswer(message.response, message.last ?? -1, reader.abort.signal) : beginAnswer(request, reader.abort.signal);
      const before = message.last;
      reader.begun = !known;
      if (await take(await events, message, reader, changed) || reader.stopped) return;
      if (await statusOf(message.response) === "cancelled") reader.stopped = true;  // in another tab
      if (reader.stopped) return;
      if (message.last !== before) lost = 0;
    } catch (problem) {
      if (problem.name === "AbortError" || problem.final || problem.status || message.response === undefined) throw problem;
    }
    if (++lost > tries) throw new Error("The connection to the server was lost.");
    await pause(250 * 2 ** lost);
  }
};

const end = (message, state, note = message.note) => Object.assign(message, { state, note, rev: message.rev + 1 });

// `view` has changed(message) for new text and ended(conversation, message, problem).
const run = async (conversation, message, request, view) => {
  let saved = performance.now();
  const save = () => saveConversation(conversation, 0);
  const reader = { abort: new AbortController(), stopped: false, begun: true, save };
  reading.set(message.id, reader);
  let problem = null;
  try {
    await readAll(request, message, reader, () => {
      if (performance.now() - saved > 1000) {
        save();
        saved = performance.now();
      }
      view.changed(conversation, message);
    });
    end(message, reader.stopped ? "stopped" : "done", reader.stopped ? "stopped" : message.note);
  } catch (caught) {
    reading.delete(message.id);
    if (caught.name === "AbortError" && !reader.stopped) return;  // the page is being left; the answer goes on
    if (reader.stopped) end(message, "stopped", "stopped");
    else end(message, "interrupted", "interrupted");
    if (!reader.stopped && caught.status !== 404) problem = caught;
  }
  reading.delete(message.id);
  if (!message.content && !message.reasoning) dropMessage(conversation, message);
  save();
  view.ended(conversation, message, problem);
};

export const begin = (conversation, parent, request, view, tab) => {
  const message = addMessage(conversation, parent, { role: "assistant", model: request.model, reasoning: "", state: "running", tab });
  saveConversation(conversation);
  run(conversation, message, request, view);
  return message;
};

// Follows answers that were running when the page was left, or that run in another tab.
export const resume = (conversation, view, tab) => {
  for (const message of Object.values(conversation.messages)) {
    if (!isRunning(message) || message.gone || reading.has(message.id)) continue;
    if (message.response) run(conversation, message, null, view);
    else if (message.tab === tab || Date.now() - message.made > patience) {  // left before the server had answered
      end(message, "interrupted", "interrupted");
      dropMessage(conversation, message);
      saveConversation(conversation, 0);
    }
  }
};

// The reader ends when the server closes the stream.
export const stopAnswer = async (message) => {
  const reader = reading.get(message.id);
  if (!reader || reader.stopped) return;
  reader.stopped = true;
  try {
    if (message.response) await cancelAnswer(message.response);
  } catch {
    reader.abort.abort();  // the server does not know it any more
  }
};
