// The chat: which conversation is shown, sending, and what the buttons do.
import * as answers from "./answers.js";
import { allConversations, deleteConversation, findConversation, loadConversations, newConversation, onOtherTabs, saveConversation } from "./conversations.js";
import { byId, element, randomId, say } from "./dom.js";
import { watchEngine } from "./engine.js";
import { closeSidebar, growPrompt, wireFrame } from "./frame.js";
import { chooseModel, findModels, modelId, wireModels } from "./models.js";
import * as settings from "./settings.js";
import { showConversations, wireSidebar } from "./sidebar.js";
import { atEnd, editMessage, paintSoon, showThread, toEnd } from "./thread.js";
import { addMessage, pathOf, root } from "./tree.js";

const numbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const tab = sessionStorage.getItem("millrace.tab") ?? randomId();
let current = newConversation();
let parameters = settings.loadParameters();

const showProblem = (text) => {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
};

// ---- the conversation that is shown

const runningHere = () => pathOf(current).find(answers.isRunning);

const show = () => {
  showThread(current, pathOf(current), modelId(), { show, edit, regenerate, answer });
  showConversations(current, openConversation);
  byId("send").hidden = !!runningHere();
  byId("stop").hidden = !runningHere();
};

// A conversation goes on with the model that answered last.
const chooseLastModel = () => chooseModel(pathOf(current).findLast((message) => message.model)?.model);

const openConversation = (conversation) => {
  current = conversation;
  settings.setShownConversation(current.id);
  byId("system").value = current.system ?? "";
  chooseLastModel();
  showProblem("");
  answers.resume(current, view, tab);
  show();
  closeSidebar();
  toEnd();
  byId("prompt").focus();
};

const beforeDelete = (conversation) => {
  Object.values(conversation.messages).filter(answers.isRunning).forEach(answers.stopAnswer);
  if (conversation.id === current.id) openConversation(newConversation());
};

// Another tab changed this conversation, or all of them.
const onOtherTab = (id) => {
  const saved = Object.keys(current.messages).length > 0;
  if (saved && !findConversation(current.id)) return openConversation(newConversation());
  if (id === current.id) answers.resume(current, view, tab);
  if (!document.querySelector("textarea.edit")) show();
};

// ---- answers

const requestFor = (path) => {
  const { max_tokens, ...others } = Object.fromEntries(numbers.filter((name) => Number.isFinite(parameters[name])).map((name) => [name, parameters[name]]));
  return {
    ...(modelId() ? { model: modelId() } : {}),
    ...(current.system ? { instructions: current.system } : {}),
    input: path.map(({ role, content }) => ({ role, content })),
    ...others, ...(max_tokens ? { max_output_tokens: max_tokens } : {}),
  };
};

const explain = (problem) => {
  if (!problem.message || problem.message === "Failed to fetch") return "The server cannot be reached.";
  if (problem.code === "context_length_exceeded")
    return `The conversation is too long for the model: edit an earlier message, or begin a new conversation. (${problem.message})`;
  return problem.message;
};

const view = {
  changed: (conversation, message) => conversation === current && paintSoon(message),
  ended: (conversation, message, problem) => {
    if (problem?.status === 401) byId("settings").showModal();
    if (problem) showProblem(explain(problem));
    say({ done: "Answer complete", stopped: "Stopped" }[message.state] ?? "The answer was interrupted");
    if (conversation !== current) return showConversations(current, openConversation);
    const follow = atEnd();
    show();
    if (follow) toEnd();
  },
};

const answer = (message) => {
  if (runningHere()) return;
  const path = pathOf(current);
  showProblem("");
  answers.begin(current, message.id, requestFor(path.slice(0, path.indexOf(message) + 1)), view, tab);
  settings.setShownConversation(current.id);
  show();
  toEnd();
  say("Answering");
};

const stop = () => {
  const message = runningHere();
  if (message) answers.stopAnswer(message);
};

const send = (text) => answer(addMessage(current, pathOf(current).at(-1)?.id ?? root, { role: "user", content: text }));

const regenerate = (message) => answer(current.messages[message.parent]);

// A changed question becomes another version, with an answer of its own; an answer is changed in place.
const edit = (message) => {
  if (runningHere()) return;
  if (message.role === "user") {
    return editMessage(message, "Send again", (content) => answer(addMessage(current, message.parent, { role: "user", content })), show);
  }
  editMessage(message, "Save", (content) => {
    Object.assign(message, { content, rev: message.rev + 1 });
    saveConversation(current);
    show();
  }, show);
};

// ---- settings and the model

const readSettings = () => {
  if ((current.system ?? "") !== byId("system").value) Object.assign(current, { system: byId("system").value, instructed: Date.now() });
  parameters = Object.fromEntries(numbers.map((name) => [name, byId(name).valueAsNumber]).filter(([, value]) => Number.isFinite(value)));
  settings.saveParameters(parameters);
  const key = byId("api-key").value;
  if (key !== settings.apiKey()) {
    settings.setApiKey(key);
    findModel();
  }
  if (pathOf(current).length) saveConversation(current);
};

const findModel = async () => {
  try {
    await findModels();
    chooseLastModel();
    showProblem("");
    answers.resume(current, view, tab);
    show();
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

// ---- the buttons

const wirePrompt = () => {
  const prompt = byId("prompt");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (runningHere() || !prompt.value.trim()) return;
    const text = prompt.value;
    prompt.value = "";
    growPrompt();
    send(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("composer").requestSubmit();
    }
    if (event.key === "ArrowUp" && !prompt.value) {
      const last = pathOf(current).findLast((m) => m.role === "user");
      if (last) edit(last);
    }
  });
  byId("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    stop();
    closeSidebar();
  });
};

const wireDialogs = () => {
  byId("open-settings").addEventListener("click", () => byId("settings").showModal());
  byId("settings").addEventListener("close", readSettings);
  byId("clear-all").addEventListener("click", () => {
    if (!confirm("Delete all conversations in this browser?")) return;
    allConversations().forEach(deleteConversation);
    openConversation(newConversation());
  });
  const engine = byId("engine");
  const look = watchEngine(engine, byId("engine-view"), (pane, problem) => pane.replaceChildren(element("p", { class: "quiet" }, problem.message)));
  byId("open-engine").addEventListener("click", () => {
    engine.showModal();
    look();
  });
};

sessionStorage.setItem("millrace.tab", tab);
loadConversations();
for (const name of numbers) if (Number.isFinite(parameters[name])) byId(name).value = parameters[name];
byId("api-key").value = settings.apiKey();
wireFrame();
wirePrompt();
wireDialogs();
wireModels(show);
wireSidebar((restored) => (restored ? openConversation(restored) : show()), beforeDelete);
byId("new-chat").addEventListener("click", () => openConversation(newConversation(current.system)));
onOtherTabs(onOtherTab);
addEventListener("pagehide", () => runningHere() && saveConversation(current, 0));
openConversation(findConversation(settings.shownConversation()) ?? current);
findModel();
