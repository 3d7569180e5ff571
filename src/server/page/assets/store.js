// Conversations and settings, kept in this browser only.

const read = (key, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
};
const write = (key, value) => {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;  // private window or full storage: the page works without saving
  }
};

const isMessage = (m) => m && typeof m.content === "string" && ["user", "assistant"].includes(m.role);
const isConversation = (c) => c && typeof c.id === "string" && Array.isArray(c.messages) && c.messages.every(isMessage);

export const loadConversations = () => {
  const list = read("millrace.conversations", []);
  return Array.isArray(list) ? list.filter(isConversation) : [];
};

// Drops the oldest conversations when the browser's storage is full.
export const saveConversations = (list) => {
  for (let kept = list.filter((c) => c.messages.length); kept.length; kept = kept.slice(0, -1)) {
    if (write("millrace.conversations", kept)) return;
  }
  localStorage.removeItem("millrace.conversations");
};

export const newConversation = (system = "") => ({ id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, title: "", system, messages: [] });

export const loadParameters = () => read("millrace.parameters", {});
export const saveParameters = (parameters) => write("millrace.parameters", parameters);

export const loadTheme = () => read("millrace.theme", null);
export const saveTheme = (theme) => write("millrace.theme", theme);

// The key is kept for this tab only.
export const apiKey = () => sessionStorage.getItem("millrace.key") ?? "";
export const setApiKey = (key) => sessionStorage.setItem("millrace.key", key);
