// The messages of a conversation on the page, with their actions.
import { isRead, isRunning } from "./answers.js";
import { copyButton } from "./clipboard.js";
import { button, byId, element } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { choose, versionsOf } from "./tree.js";

const fillAnswer = (body, message) => {
  const nodes = [];
  const running = isRunning(message);
  if (message.reasoning) {
    const thoughts = element("details", { class: "reasoning" }, element("summary", {}, running && !message.content ? "Thinking…" : "Thoughts"), element("div", {}, message.reasoning));
    thoughts.open = body.querySelector("details")?.open ?? (running && !message.content);
    nodes.push(thoughts);
  }
  const text = element("div", { class: "markdown" }, ...renderMarkdown(message.content));
  if (running) (text.lastElementChild ?? text).classList.add("cursor");
  body.replaceChildren(...nodes, text);
};

// "‹ 1/2 ›": other versions of a message, with what follows them.
const versionSwitch = (conversation, message, show) => {
  const versions = versionsOf(conversation, message);
  if (versions.length < 2) return [];
  const at = versions.indexOf(message);
  const step = (by, sign, name) => {
    const node = button(sign, () => {
      choose(conversation, versions[at + by]);
      show();
      byId("messages").querySelector(`[data-id="${versions[at + by].id}"] .versions button[aria-label="${name}"]`)?.focus();
    }, { "aria-label": name });
    node.disabled = !versions[at + by];
    return node;
  };
  return [element("span", { class: "versions", role: "group", "aria-label": "Versions of this message" },
    step(-1, "‹", "Earlier version"), element("span", { class: "quiet small" }, `${at + 1}/${versions.length}`), step(1, "›", "Later version"))];
};

const messageNode = (message, conversation, modelName, acts, isLast) => {
  const body = element("div", { class: "body" });
  const actions = element("div", { class: "actions" });
  const isUser = message.role === "user";
  if (isUser) body.textContent = message.content;
  else fillAnswer(body, message);
  if (!isRunning(message)) {
    actions.append(...versionSwitch(conversation, message, acts.show), copyButton(() => message.content), button("Edit", () => acts.edit(message)));
    if (!isUser) actions.append(button(message.state === "interrupted" ? "Retry" : "Regenerate", () => acts.regenerate(message)));
    if (isUser && isLast) actions.append(button("Retry", () => acts.answer(message)));
    if (message.note) actions.append(element("span", { class: "quiet small" }, message.note));
  } else if (!isRead(message)) {
    actions.append(element("span", { class: "quiet small" }, "running in another tab"));
  }
  const who = element("div", { class: "who" }, isUser ? "You" : message.model || modelName || "Model");
  return element("article", { class: `message ${message.role}`, "data-id": message.id, "aria-label": isUser ? "Your message" : "Answer" }, who, body, actions);
};

const nodeOf = (message) => byId("messages").querySelector(`[data-id="${message.id}"]`);

export const showThread = (conversation, path, modelName, acts) => {
  byId("messages").replaceChildren(...path.map((message, i) => messageNode(message, conversation, modelName, acts, i + 1 === path.length)));
  if (path.length) return;
  byId("messages").append(element("div", { class: "welcome" }, element("img", { src: "page/icon.svg", alt: "" }), element("p", {}, "What would you like to know?")));
};

export const atEnd = () => byId("scroll").scrollHeight - byId("scroll").scrollTop - byId("scroll").clientHeight < 80;
export const toEnd = () => (byId("scroll").scrollTop = byId("scroll").scrollHeight);

// Draws a growing message at most once per frame, and less often as it grows.
const asked = new Set();
let last = 0;
export const paintSoon = (message) => {
  if (asked.has(message.id)) return;
  asked.add(message.id);
  const wait = Math.min(400, message.content.length / 100) - (performance.now() - last);
  setTimeout(() => requestAnimationFrame(() => {
    asked.delete(message.id);
    last = performance.now();
    const follow = atEnd();
    const body = isRunning(message) && nodeOf(message)?.querySelector(".body");
    if (body) fillAnswer(body, message);
    if (body && follow) toEnd();
  }), Math.max(0, wait));
};

// The message becomes a text box.
export const editMessage = (message, saveName, save, cancel) => {
  const box = element("textarea", { class: "edit", "aria-label": "Edit the message" });
  box.value = message.content;
  const keep = button(saveName, () => box.value.trim() && save(box.value));
  const drop = button("Cancel", cancel);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") drop.click();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) keep.click();
  });
  nodeOf(message).querySelector(".body").replaceChildren(box);
  nodeOf(message).querySelector(".actions").replaceChildren(keep, drop);
  box.focus();
};
