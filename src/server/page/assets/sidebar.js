// The list of conversations: search, and a dialog for each with its name, export and deletion. A deletion can be taken
// back for some seconds.
import { allConversations, deleteConversation, restoreConversation, saveConversation, titleOf } from "./conversations.js";
import { button, byId, element, say } from "./dom.js";
import { asJson, asMarkdown, download, fileName } from "./export.js";

const undoTime = 10000;
let asked = null;  // the conversation in the dialog
let undoTimer = null;

// ---- search

const around = 30;

// The place where the words are found, or null. Titles count as found without a place.
const found = (conversation, words) => {
  if (!words || titleOf(conversation).toLowerCase().includes(words)) return "";
  for (const { content, gone } of Object.values(conversation.messages)) {
    const at = gone ? -1 : content.toLowerCase().indexOf(words);
    if (at >= 0) return `${at > around ? "…" : ""}${content.slice(Math.max(0, at - around), at + words.length + 2 * around)}`;
  }
  return null;
};

// ---- the list

export const showConversations = (current, open) => {
  const words = byId("search").value.trim().toLowerCase();
  const rows = [];
  for (const conversation of allConversations()) {
    const place = found(conversation, words);
    if (place === null) continue;
    const title = button(titleOf(conversation), () => open(conversation), { class: "title" });
    if (place) title.append(element("span", { class: "quiet small place" }, place));
    const more = button("⋯", () => showMenu(conversation), { class: "more", "aria-haspopup": "dialog", "aria-label": `More about ${titleOf(conversation)}` });
    const row = element("li", {}, title, more);
    if (conversation.id === current.id) row.setAttribute("aria-current", "true");
    rows.push(row);
  }
  if (words && !rows.length) rows.push(element("li", { class: "quiet small none" }, "Nothing found"));
  byId("conversations").replaceChildren(...rows);
};

// ---- one conversation

const showMenu = (conversation) => {
  asked = conversation;
  byId("name").value = titleOf(conversation);
  byId("conversation").showModal();
  byId("name").select();
};

const offerUndo = (conversation, changed) => {
  clearTimeout(undoTimer);
  const hide = () => (byId("undo").hidden = true);
  byId("undo").replaceChildren(element("span", {}, `Deleted “${titleOf(conversation).slice(0, 40)}”`), button("Undo", () => {
    restoreConversation(conversation);
    hide();
    changed(conversation);
  }));
  byId("undo").hidden = false;
  say("Deleted. Undo is possible for ten seconds.");
  undoTimer = setTimeout(hide, undoTime);
};

// `changed(restored)` is called after every change of the list; `deleted(conversation)` before a deletion.
export const wireSidebar = (changed, deleted) => {
  const dialog = byId("conversation");
  byId("search").addEventListener("input", () => changed());
  byId("close-conversation").addEventListener("click", () => dialog.close());
  byId("rename").addEventListener("submit", () => {
    const title = byId("name").value.trim();
    if (!title || title === titleOf(asked)) return;
    Object.assign(asked, { title, titled: Date.now() });
    saveConversation(asked, 0);
    changed();
  });
  byId("export-markdown").addEventListener("click", () => download(fileName(asked, "md"), "text/markdown", asMarkdown(asked)));
  byId("export-json").addEventListener("click", () => download(fileName(asked, "json"), "application/json", asJson(asked)));
  byId("delete").addEventListener("click", () => {
    dialog.close();
    deleted(asked);
    deleteConversation(asked);
    changed();
    offerUndo(asked, changed);
  });
};
