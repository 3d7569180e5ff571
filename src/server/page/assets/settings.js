// Reading and writing the browser's storage, and the small things kept there.

export const read = (key, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
};
export const write = (key, value) => {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;  // private window or full storage
  }
};

export const loadParameters = () => read("millrace.parameters", {});
export const saveParameters = (parameters) => write("millrace.parameters", parameters);

export const loadTheme = () => read("millrace.theme", null);
export const saveTheme = (theme) => write("millrace.theme", theme);

export const loadModel = () => read("millrace.model", "");
export const saveModel = (id) => write("millrace.model", id);

// Kept for this tab only: the API key, and which conversation it shows.
export const apiKey = () => sessionStorage.getItem("millrace.key") ?? "";
export const setApiKey = (key) => sessionStorage.setItem("millrace.key", key);
export const shownConversation = () => sessionStorage.getItem("millrace.shown") ?? "";
export const setShownConversation = (id) => sessionStorage.setItem("millrace.shown", id);
