// The chat: conversations, the message box, streaming, and actions on messages.
import { getJson, streamChat } from "./api.js";
import { watchEngine } from "./engine.js";
import { element, renderMarkdown } from "./markdown.js";
import * as store from "./store.js";

const byId = (id) => document.getElementById(id);
const numbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

let conversations = store.loadConversations();
let current = store.newConversation();
let parameters = store.loadParameters();
let running = null;  // {abort, message} while an answer streams
let modelId = "";

// ---- what is on the page

const say = (text) => (byId("status").textContent = text);
const showProblem = (text) => {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
};

const title = (conversation) => conversation.title || conversation.messages.find((m) => m.role === "user")?.content.slice(0, 60) || "New conversation";

const showConversations = () => {
  byId("conversations").replaceChildren(...conversations.map((conversation) => {
    const open = element("button", { type: "button", class: "title" }, title(conversation));
    const remove = element("button", { type: "button", class: "delete", "aria-label": `Delete ${title(conversation)}` }, "✕");
    open.addEventListener("click", () => openConversation(conversation));
    remove.addEventListener("click", () => deleteConversation(conversation));
    const row = element("li", {}, open, remove);
    if (conversation === current) row.setAttribute("aria-current", "true");
    return row;
  }));
};

const action = (name, act) => {
  const button = element("button", { type: "button" }, name);
  button.addEventListener("click", () => act(button));
  return button;
};

const copyAction = (message) => action("Copy", async (button) => {
  await navigator.clipboard?.writeText(message.content);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1200);
});

const fillAnswer = (body, message, streaming) => {
  const nodes = [];
  if (message.reasoning) {
    const thoughts = element("details", { class: "reasoning" }, element("summary", {}, streaming && !message.content ? "Thinking…" : "Thoughts"), element("div", {}, message.reasoning));
    thoughts.open = body.querySelector("details")?.open ?? (streaming && !message.content);
    nodes.push(thoughts);
  }
  const text = element("div", { class: "markdown" }, ...renderMarkdown(message.content));
  if (streaming) (text.lastElementChild ?? text).classList.add("cursor");
  body.replaceChildren(...nodes, text);
};

const messageNode = (message, index) => {
  const body = element("div", { class: "body" });
  const actions = element("div", { class: "actions" });
  const isUser = message.role === "user";
  if (isUser) body.textContent = message.content;
  else fillAnswer(body, message, running?.message === message);
  if (!(running?.message === message)) {
    actions.append(copyAction(message), action("Edit", () => edit(index)));
    if (!isUser) actions.append(action("Regenerate", () => regenerate(index)));
    if (message.note) actions.append(element("span", { class: "quiet small" }, message.note));
  }
  const who = element("div", { class: "who" }, isUser ? "You" : modelId || "Model");
  return element("article", { class: `message ${message.role}`, "aria-label": isUser ? "Your message" : "Answer" }, who, body, actions);
};

const showMessages = () => {
  const list = byId("messages");
  list.replaceChildren(...current.messages.map(messageNode));
  if (!current.messages.length) {
    list.append(element("div", { class: "welcome" }, element("img", { src: "page/icon.svg", alt: "" }), element("p", {}, "What would you like to know?")));
  }
  showConversations();
  byId("send").hidden = !!running;
  byId("stop").hidden = !running;
};

const atEnd = () => byId("scroll").scrollHeight - byId("scroll").scrollTop - byId("scroll").clientHeight < 80;
const toEnd = () => (byId("scroll").scrollTop = byId("scroll").scrollHeight);

// ---- conversations

const openConversation = (conversation) => {
  stop();
  current = conversation;
  byId("system").value = current.system ?? "";
  showProblem("");
  showMessages();
  closeSidebar();
  toEnd();
  byId("prompt").focus();
};

const deleteConversation = (conversation) => {
  conversations = conversations.filter((c) => c !== conversation);
  store.saveConversations(conversations);
  if (conversation === current) openConversation(store.newConversation());
  else showConversations();
};

const keep = () => {
  conversations = [current, ...conversations.filter((c) => c !== current)];
  store.saveConversations(conversations);
};

// ---- answering

const requestFor = (messages) => ({
  ...(modelId ? { model: modelId } : {}),
  messages: [...(current.system ? [{ role: "system", content: current.system }] : []), ...messages.map(({ role, content }) => ({ role, content }))],
  ...Object.fromEntries(numbers.filter((name) => Number.isFinite(parameters[name])).map((name) => [name, parameters[name]])),
});

const noteOf = (result, began, first) => {
  const tokens = result.usage?.completion_tokens;
  const seconds = (performance.now() - (first ?? began)) / 1000;
  const parts = [];
  if (tokens > 1 && seconds > 0) parts.push(`${tokens} tokens, ${((tokens - 1) / seconds).toFixed(1)}/s`);
  if (first) parts.push(`first after ${((first - began) / 1000).toFixed(2)} s`);
  if (result.finish === "length") parts.push("cut at the longest answer");
  return parts.join(" · ");
};

// Draws at most once per frame, and less often as the message grows.
const painter = (message) => {
  let asked = false, last = 0;
  const paint = () => {
    asked = false;
    if (running?.message !== message) return;
    last = performance.now();
    const follow = atEnd();
    const body = byId("messages").lastElementChild?.querySelector(".body");
    if (body) fillAnswer(body, message, true);
    if (follow) toEnd();
  };
  return () => {
    if (asked) return;
    asked = true;
    const pause = Math.min(400, message.content.length / 100) - (performance.now() - last);
    setTimeout(() => requestAnimationFrame(paint), Math.max(0, pause));
  };
};

const answer = async () => {
  const conversation = current;
  const message = { role: "assistant", content: "", reasoning: "" };
  const request = requestFor(conversation.messages);
  conversation.messages.push(message);
  const abort = new AbortController();
  running = { abort, message };
  showProblem("");
  showMessages();
  toEnd();
  say("Answering");
  const began = performance.now();
  let first = null;
  const paint = painter(message);
  try {
    const result = await streamChat(request, abort.signal, ({ content, reasoning }) => {
      first ??= performance.now();
      message.content += content;
      message.reasoning += reasoning;
      paint();
    });
    message.note = noteOf(result, began, first);
    say("Answer complete");
  } catch (problem) {
    if (problem.name === "AbortError") {
      message.note = "stopped";
      say("Stopped");
    } else {
      if (problem.status === 401) byId("settings").showModal();
      showProblem(problem.message || "The server cannot be reached.");
    }
  }
  if (!message.content && !message.reasoning) conversation.messages.splice(conversation.messages.indexOf(message), 1);
  if (running?.message === message) running = null;
  if (conversation === current) {
    const follow = atEnd();
    keep();
    showMessages();
    if (follow) toEnd();
  } else {
    store.saveConversations(conversations);
    showConversations();
  }
};

const stop = () => running?.abort.abort();

const send = (text) => {
  if (running || !text.trim()) return;
  current.messages.push({ role: "user", content: text });
  keep();
  answer();
};

const regenerate = (index) => {
  if (running) return;
  current.messages.splice(index);
  answer();
};

// The message becomes a text box. A changed question is sent again and drops what followed; an answer is changed in
// place.
const edit = (index) => {
  if (running) return;
  const message = current.messages[index];
  const node = byId("messages").children[index];
  const box = element("textarea", { class: "edit", "aria-label": "Edit the message" });
  box.value = message.content;
  const save = action(message.role === "user" ? "Send again" : "Save", () => {
    if (!box.value.trim()) return;
    message.content = box.value;
    if (message.role === "user") {
      current.messages.splice(index + 1);
      keep();
      answer();
    } else {
      keep();
      showMessages();
    }
  });
  const cancel = action("Cancel", showMessages);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel.click();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save.click();
  });
  node.querySelector(".body").replaceChildren(box);
  node.querySelector(".actions").replaceChildren(save, cancel);
  box.focus();
};

// ---- the frame

const openSidebar = () => {
  byId("sidebar").classList.add("open");
  byId("shade").hidden = false;
  byId("open-sidebar").setAttribute("aria-expanded", "true");
  byId("new-chat").focus();
};
const closeSidebar = () => {
  byId("sidebar").classList.remove("open");
  byId("shade").hidden = true;
  byId("open-sidebar").setAttribute("aria-expanded", "false");
};

const applyTheme = (theme) => {
  if (theme) document.documentElement.dataset.theme = theme;
};
const switchTheme = () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark ? "light" : "dark";
  applyTheme(theme);
  store.saveTheme(theme);
};

const grow = () => {
  const box = byId("prompt");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
};

const readSettings = () => {
  current.system = byId("system").value;
  parameters = Object.fromEntries(numbers.map((name) => [name, byId(name).valueAsNumber]).filter(([, value]) => Number.isFinite(value)));
  store.saveParameters(parameters);
  const key = byId("api-key").value;
  if (key !== store.apiKey()) {
    store.setApiKey(key);
    findModel();
  }
  if (current.messages.length) keep();
};

const findModel = async () => {
  try {
    modelId = (await getJson("v1/models")).data[0]?.id ?? "";
    byId("model").textContent = modelId || "no model";
    document.title = modelId ? `${modelId} · millrace` : "millrace";
    showProblem("");
    showMessages();
  } catch (problem) {
    byId("model").textContent = "millrace";
    if (problem.status === 401) {
      showProblem("This server asks for an API key: enter it in the settings.");
    } else {
      showProblem("The model is not ready yet.");
      setTimeout(findModel, 1500);
    }
  }
};

const wire = () => {
  const prompt = byId("prompt");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (running || !prompt.value.trim()) return;
    const text = prompt.value;
    prompt.value = "";
    grow();
    send(text);
  });
  prompt.addEventListener("input", grow);
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("composer").requestSubmit();
    }
    if (event.key === "ArrowUp" && !prompt.value) {
      const last = current.messages.findLastIndex((m) => m.role === "user");
      if (last >= 0) edit(last);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    stop();
    closeSidebar();
  });
  byId("stop").addEventListener("click", stop);
  byId("new-chat").addEventListener("click", () => openConversation(store.newConversation(current.system)));
  byId("open-sidebar").addEventListener("click", openSidebar);
  byId("close-sidebar").addEventListener("click", closeSidebar);
  byId("shade").addEventListener("click", closeSidebar);
  byId("theme").addEventListener("click", switchTheme);
  byId("open-settings").addEventListener("click", () => byId("settings").showModal());
  byId("settings").addEventListener("close", readSettings);
  byId("clear-all").addEventListener("click", () => {
    if (!confirm("Delete all conversations in this browser?")) return;
    conversations = [];
    store.saveConversations(conversations);
    openConversation(store.newConversation());
  });
  const engine = byId("engine");
  const look = watchEngine(engine, byId("engine-view"), (view, problem) => view.replaceChildren(element("p", { class: "quiet" }, problem.message)));
  byId("open-engine").addEventListener("click", () => {
    engine.showModal();
    look();
  });
};

applyTheme(store.loadTheme());
for (const name of numbers) if (Number.isFinite(parameters[name])) byId(name).value = parameters[name];
byId("api-key").value = store.apiKey();
wire();
showMessages();
findModel();
