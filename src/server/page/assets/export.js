// A conversation as a file: JSON with every version of every message, or Markdown of the versions that are shown.
import { element } from "./dom.js";
import { titleOf } from "./conversations.js";
import { pathOf } from "./tree.js";

export const asMarkdown = (conversation) => {
  const parts = [`# ${titleOf(conversation).replace(/\s+/g, " ")}`];
  if (conversation.system) parts.push(`**System**\n\n${conversation.system}`);
  for (const { role, content, reasoning } of pathOf(conversation)) {
    const thoughts = reasoning ? `<details><summary>Thoughts</summary>\n\n${reasoning}\n\n</details>\n\n` : "";
    parts.push(`## ${role === "user" ? "You" : "Model"}\n\n${thoughts}${content}`);
  }
  return `${parts.join("\n\n")}\n`;
};

export const asJson = (conversation) => `${JSON.stringify({
  title: titleOf(conversation), system: conversation.system, created: new Date(conversation.created).toISOString(),
  messages: pathOf(conversation).map(({ role, content, reasoning }) => ({ role, content, ...(reasoning ? { reasoning } : {}) })),
  versions: Object.values(conversation.messages).filter((message) => !message.gone).map(({ id, parent, role, content, reasoning }) => ({ id, parent, role, content, ...(reasoning ? { reasoning } : {}) })),
}, null, 2)}\n`;

export const download = (name, type, text) => {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: address, download: name, hidden: "" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
};

export const fileName = (conversation, suffix) =>
  `${titleOf(conversation).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation"}.${suffix}`;
