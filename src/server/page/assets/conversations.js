// Conversations, kept in this browser: one entry of localStorage each, so that tabs do not overwrite each other. A tab
// reads and merges before it writes, and hears of other tabs' writes by storage events.
import { randomId } from "./dom.js";
import { addMessage, hasMore, merge, root } from "./tree.js";
import { read, write } from "./settings.js";

const prefix = "millrace.conversation.";
const keyOf = (id) => prefix + id;
const day = 24 * 3600 * 1000;
const known = new Map();  // by id

const isMessage = (m) => m && typeof m.id === "string" && typeof m.parent === "string" && typeof m.content === "string" && ["user", "assistant"].includes(m.role);
const isConversation = (c) => c && typeof c.id === "string" && c.messages && c.chosen && Object.values(c.messages).every(isMessage);

export const newConversation = (system = "") =>
  ({ id: randomId(), created: Date.now(), changed: Date.now(), title: "", system, messages: {}, chosen: {} });

export const titleOf = (conversation) => conversation.title
  || Object.values(conversation.messages).find((m) => m.parent === root)?.content.slice(0, 60) || "New conversation";

export const allConversations = () => [...known.values()].sort((a, b) => b.changed - a.changed);
export const findConversation = (id) => known.get(id);

// The conversations that were changed the longest ago make room when the browser's storage is full.
const writeAnyhow = (conversation) => {
  while (!write(keyOf(conversation.id), conversation)) {
    const oldest = allConversations().findLast((c) => c.id !== conversation.id);
    if (!oldest) return false;  // a private window: the page works without saving
    known.delete(oldest.id);
    localStorage.removeItem(keyOf(oldest.id));
  }
  return true;
};

// False: another tab has deleted it.
export const saveConversation = (conversation, now = Date.now()) => {
  const stored = read(keyOf(conversation.id), null);
  if (stored?.deleted) return false;
  if (isConversation(stored)) merge(conversation, stored);
  conversation.changed = Math.max(conversation.changed, now);
  known.set(conversation.id, conversation);
  writeAnyhow(conversation);
  return true;
};

// A mark stays for a day, so that a tab that still shows the conversation does not write it again.
export const deleteConversation = (conversation) => {
  known.delete(conversation.id);
  write(keyOf(conversation.id), { id: conversation.id, deleted: Date.now() });
};

export const restoreConversation = (conversation) => {
  localStorage.removeItem(keyOf(conversation.id));
  saveConversation(conversation, 0);
};

// ---- what other tabs do

const take = (id, stored) => {
  const mine = known.get(id);
  if (!isConversation(stored)) return known.delete(id);
  if (!mine) return known.set(id, stored);
  merge(mine, stored);
  if (hasMore(mine, stored)) saveConversation(mine, 0);
};

export const onOtherTabs = (changed) => addEventListener("storage", (event) => {
  if (event.key === null) known.clear();  // everything was cleared
  else if (event.key.startsWith(prefix)) take(event.key.slice(prefix.length), read(event.key, null));
  else return;
  changed(event.key?.slice(prefix.length));
});

// ---- at the start

// Earlier versions kept one list of conversations without branches.
const takeOldList = () => {
  const list = read("millrace.conversations", null);
  if (!Array.isArray(list)) return;
  for (const [age, old] of list.entries()) {
    if (!Array.isArray(old?.messages)) continue;
    const conversation = { ...newConversation(old.system ?? ""), title: old.title ?? "" };
    if (typeof old.id === "string") conversation.id = old.id;
    let parent = root;
    for (const { role, content, reasoning, note } of old.messages) parent = addMessage(conversation, parent, { role, content, reasoning, note }).id;
    if (isConversation(conversation)) saveConversation(conversation, Date.now() - age);
  }
  localStorage.removeItem("millrace.conversations");
};

export const loadConversations = () => {
  for (const key of Object.keys(localStorage).filter((name) => name.startsWith(prefix))) {
    const stored = read(key, null);
    if (isConversation(stored)) known.set(stored.id, stored);
    else if (!stored?.deleted || stored.deleted < Date.now() - day) localStorage.removeItem(key);
  }
  takeOldList();
};
