// The live view of the engine: running and waiting requests, speed, memory use, chosen kernels.
import { getJson } from "./api.js";
import { element, inSpace } from "./dom.js";

const svg = inSpace("http://www.w3.org/2000/svg");

const history = [];
const remembered = 90;

const spark = (values) => {
  const top = Math.max(1, ...values);
  const points = values.map((value, i) => `${(i * 100) / (remembered - 1)},${30 - (28 * value) / top}`).join(" ");
  const picture = svg("svg", { viewBox: "0 0 100 32", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(svg("polyline", { points, class: "spark" }));
  return picture;
};

const card = (name, value, ...more) =>
  element("div", { class: "card" }, element("div", { class: "name" }, name), element("div", { class: "value" }, value), ...more);

const table = (caption, columns, rows) => element("div", { class: "scroll-x" }, element("table", {},
  element("caption", { class: "sr" }, caption),
  element("thead", {}, element("tr", {}, ...columns.map(([name, numeric]) => element("th", { scope: "col", class: numeric ? "number" : "" }, name)))),
  element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", { class: columns[i][1] ? "number" : "" }, cell)))))));

const number = (value, digits = 0) => Number(value ?? 0).toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
const percent = (part, whole) => (whole > 0 ? `${number((100 * part) / whole)} %` : "–");

const kvCard = (kv) => {
  const bar = element("div", { class: "kv", role: "img", "aria-label": `${percent(kv.used, kv.blocks)} of the KV blocks in use` });
  for (const kind of ["used", "cached"]) {
    const part = element("span", { class: kind });
    part.style.width = `${kv.blocks > 0 ? (100 * kv[kind]) / kv.blocks : 0}%`;
    bar.append(part);
  }
  return card("KV blocks", percent(kv.used, kv.blocks), bar,
    element("div", { class: "small quiet" }, `${number(kv.used)} used, ${number(kv.cached)} cached of ${number(kv.blocks)}`));
};

const roof = (value) => {
  if (value === null) return "–"; // the roof is a guess
  const meter = element("meter", { min: 0, max: 100, value: Math.round(value), "aria-label": "percent of the roof" });
  return element("span", {}, meter, ` ${number(value)} %`);
};

const show = (view, stats, choices) => {
  const rows = stats.streams.map((s) => [String(s.id) + (s.choice ? `/${s.choice}` : ""), s.client || "–",
    number(s.prompt_tokens), s.computed_tokens < s.prompt_tokens ? `${percent(s.computed_tokens, s.prompt_tokens)} read` : "writing", number(s.generated_tokens)]);
  const chosen = choices.map((c) => [c.what, `${c.n} × ${c.k}`, c.format, number(c.m), c.kernel, `${number(c.microseconds, 1)} µs`, roof(c.percent_of_roof)]);
  view.replaceChildren(
    element("div", { class: "cards" },
      card("Tokens per second", number(stats.tokens_per_second, 1), spark(history.map((h) => h.tokens_per_second))),
      card("Running streams", number(stats.running), spark(history.map((h) => h.running))),
      card("Waiting", number(stats.waiting), spark(history.map((h) => h.waiting))),
      kvCard(stats.kv),
      card("Last step", `${number(stats.step_ms, 1)} ms`, element("div", { class: "small quiet" }, `${number(stats.step_rows)} rows`)),
      card("Prefix hits", percent(stats.cached_tokens, stats.prompt_tokens), element("div", { class: "small quiet" }, `of ${number(stats.prompt_tokens)} prompt tokens`))),
    element("h3", {}, "Streams"),
    rows.length ? table("Running streams", [["Request"], ["Client"], ["Prompt", true], ["Now"], ["Generated", true]], rows)
                : element("p", { class: "quiet" }, "Nothing is running."),
    element("h3", {}, "Dataflow: the kernel chosen for each problem"),
    chosen.length ? table("Kernels chosen by the dataflow", [["Use"], ["Shape"], ["Format"], ["Rows", true], ["Kernel"], ["Time", true], ["Of the roof"]], chosen)
                  : element("p", { class: "quiet" }, "No choices to show."));
};

// Polls while the dialog is open, once a second.
export const watchEngine = (dialog, view, onProblem) => {
  let choices = null, timer = null;
  const tick = async () => {
    try {
      const stats = await getJson("engine");
      choices ??= (await getJson("engine/dataflow")).choices;
      history.push(stats);
      if (history.length > remembered) history.shift();
      // Do not redraw a table in which the user selects text.
      if (dialog.open && getSelection().isCollapsed) show(view, stats, choices);
    } catch (problem) {
      onProblem(view, problem);
    }
    if (dialog.open) timer = setTimeout(tick, 1000);
  };
  dialog.addEventListener("close", () => clearTimeout(timer));
  return tick;
};
