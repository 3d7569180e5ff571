// The served models. If there are several, the header has a list to choose from; the choice stays in the browser.
import { getJson } from "./api.js";
import { byId, element } from "./dom.js";
import { loadModel, saveModel } from "./settings.js";

const notes = { unloaded: "not loaded", loading: "loading", failed: "failed" };
let served = [];
let chosen = "";

export const modelId = () => chosen;

const draw = () => {
  const several = served.length > 1;
  byId("model").hidden = several;
  byId("models").hidden = !several;
  byId("model").textContent = chosen || "no model";
  byId("models").replaceChildren(...served.map(({ id, state, problem }) =>
    element("option", { value: id, ...(problem ? { title: problem } : {}) }, notes[state] ? `${id} (${notes[state]})` : id)));
  byId("models").value = chosen;
  document.title = chosen ? `${chosen} · millrace` : "millrace";
};

// Ignores a model that is not served.
export const chooseModel = (id) => {
  if (!served.some((model) => model.id === id)) return;
  chosen = id;
  draw();
};

export const findModels = async () => {
  served = (await getJson("v1/models")).data.filter((model) => !model.alias_of);
  const isServed = (id) => served.some((model) => model.id === id);
  chosen = [chosen, loadModel(), served[0]?.id].find(isServed) ?? "";
  draw();
};

export const wireModels = (changed) => byId("models").addEventListener("change", () => {
  chooseModel(byId("models").value);
  saveModel(chosen);
  changed();
});
