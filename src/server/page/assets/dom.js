// Short names for making and finding elements. Children that are strings become text, never HTML.
export const byId = (id) => document.getElementById(id);

const filled = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

export const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

export const inSpace = (space) => (name, attributes = {}, ...children) => filled(document.createElementNS(space, name), attributes, children);

export const button = (name, act, attributes = {}) => {
  const node = element("button", { type: "button", ...attributes }, name);
  node.addEventListener("click", () => act(node));
  return node;
};

// Read aloud by screen readers.
export const say = (text) => (byId("status").textContent = text);

// Ids for conversations, messages and tabs. crypto.randomUUID is missing where the page comes over plain http.
export const randomId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
