// The frame around the messages: the sidebar at phone size, light and dark, the size of the message box.
import { byId } from "./dom.js";
import { loadTheme, saveTheme } from "./settings.js";

const openSidebar = () => {
  byId("sidebar").classList.add("open");
  byId("shade").hidden = false;
  byId("open-sidebar").setAttribute("aria-expanded", "true");
  byId("new-chat").focus();
};
export const closeSidebar = () => {
  byId("sidebar").classList.remove("open");
  byId("shade").hidden = true;
  byId("open-sidebar").setAttribute("aria-expanded", "false");
};

const applyTheme = (theme) => {
  if (theme) document.documentElement.dataset.theme = theme;
};
const switchTheme = () => {
  const set = document.documentElement.dataset.theme;
  const dark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  applyTheme(dark ? "light" : "dark");
  saveTheme(dark ? "light" : "dark");
};

export const growPrompt = () => {
  const box = byId("prompt");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
};

export const wireFrame = () => {
  applyTheme(loadTheme());
  byId("open-sidebar").addEventListener("click", openSidebar);
  byId("close-sidebar").addEventListener("click", closeSidebar);
  byId("shade").addEventListener("click", closeSidebar);
  byId("theme").addEventListener("click", switchTheme);
  byId("prompt").addEventListener("input", growPrompt);
};
