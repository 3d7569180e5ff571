// Copying text. Browsers offer navigator.clipboard over https only; over plain http a selected text is copied instead.
import { button, element, say } from "./dom.js";

const copySelection = (text) => {
  const before = document.activeElement;
  const box = element("textarea", { class: "sr", readonly: "", "aria-hidden": "true" });
  box.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  box.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    box.remove();
    before?.focus();
  }
};

// Resolves to whether the text was copied.
export const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {  // not offered, or not allowed
    return copySelection(text);
  }
};

export const copyButton = (text) => button("Copy", async (node) => {
  const copied = await copyText(text());
  node.textContent = copied ? "Copied" : "Not copied: the browser refuses";
  say(node.textContent);
  setTimeout(() => (node.textContent = "Copy"), copied ? 1200 : 4000);
});
