// LaTeX math to MathML, which browsers draw themselves. A subset: what is not known is shown as it was written.
import { element, inSpace } from "./dom.js";
import { accents, functions, inAlphabet, isAlphabet, large, letters, operators, spaces, underAccents, upright } from "./math_symbols.js";

const ml = inSpace("http://www.w3.org/1998/Math/MathML");
const row = (nodes) => (nodes.length === 1 ? nodes[0] : ml("mrow", {}, ...nodes));
const fenceOf = (sign) => ml("mo", { fence: "true", stretchy: "true" }, sign);
const mostDepth = 50, mostCharacters = 10000;

class Source {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.depth = 0;
  }

  // The next token and the place behind it: a command, or one character.
  look() {
    const space = this.text.slice(this.at).match(/^(?:\s|%[^\n]*\n)*/)[0].length;
    const token = this.text.slice(this.at + space).match(/^(?:\\(?:[A-Za-z]+|[^])|[^])/u)?.[0] ?? null;
    return [token, this.at + space + (token?.length ?? 0)];
  }
  peek() { return this.look()[0]; }
  next() {
    const [token, behind] = this.look();
    this.at = behind;
    return token;
  }
  takes(token) {
    const same = this.peek() === token;
    if (same) this.next();
    return same;
  }
  // The text between braces, as it stands; or one token.
  raw() {
    if (!this.takes("{")) return this.next() ?? "";
    const from = this.at;
    for (let open = 1; this.at < this.text.length; ++this.at) {
      if (this.text[this.at] === "\\") ++this.at;
      else if (this.text[this.at] === "{") ++open;
      else if (this.text[this.at] === "}" && --open === 0) return this.text.slice(from, this.at++);
    }
    throw new Error("a brace is not closed");
  }
  option() {
    if (!this.takes("[")) return null;
    const end = this.text.indexOf("]", this.at);
    if (end < 0) throw new Error("a bracket is not closed");
    const text = this.text.slice(this.at, end);
    this.at = end + 1;
    return text;
  }
}

// ---- lists of atoms

const many = (source, isEnd) => {
  if (++source.depth > mostDepth) throw new Error("nested too deeply");
  const nodes = [];
  for (let token; (token = source.peek()) !== null && !isEnd(token); ) {
    if (["}", "&", "\\\\", "\\right", "\\end"].includes(token)) throw new Error(`${token} without its beginning`);
    nodes.push(...scripted(source));
  }
  --source.depth;
  return nodes;
};

const group = (source) => {
  if (/^[0-9]$/.test(source.peek())) return ml("mn", {}, source.next());  // \frac12: one digit
  if (!source.takes("{")) return row(atom(source).nodes);
  const nodes = many(source, (token) => token === "}");
  if (!source.takes("}")) throw new Error("a brace is not closed");
  return row(nodes);
};

// An atom with what stands below and above it.
const scripted = (source) => {
  const base = "^_'".includes(source.peek()) ? { nodes: [ml("mrow")] } : atom(source);
  let below = null, above = null, limits = base.limits;
  for (let token; (token = source.peek()) && ["^", "_", "'", "\\limits", "\\nolimits"].includes(token); ) {
    source.next();
    if (token === "_") below = group(source);
    else if (token === "^") above = above ? row([above, group(source)]) : group(source);
    else if (token === "'") above = row([...(above ? [above] : []), ml("mo", {}, "′")]);
    else limits = token === "\\limits";
  }
  // A function's name keeps a distance from its argument, unless that is in parentheses.
  const gap = base.isFunction && !/^(\(|\[|\)|\}|&|,|\\(left|right|end|\\))$/.test(source.peek() ?? ")") ? [space(.167)] : [];
  if (!below && !above) return [...base.nodes, ...gap];
  const last = base.nodes.pop();
  const names = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
  const node = below && above ? ml(names[2], {}, last, below, above) : below ? ml(names[0], {}, last, below) : ml(names[1], {}, last, above);
  return [...base.nodes, node, ...gap];
};

// ---- atoms

const one = (node) => ({ nodes: [node] });

const atom = (source) => {
  const token = source.next();
  if (token === null) throw new Error("something is missing");
  if (token === "{") {
    source.at -= 1;
    return one(group(source));
  }
  if (/^[0-9]$/.test(token)) {
    const rest = source.text.slice(source.at).match(/^[0-9]*(?:[.,][0-9]+)*/)[0];
    source.at += rest.length;
    return one(ml("mn", {}, token + rest));
  }
  if (/^\p{L}$/u.test(token)) return one(ml("mi", {}, token));
  if (token === "~") return one(space(spaces["~"]));
  if (token.startsWith("\\") && token.length > 1) return command(source, token.slice(1));
  return one(ml("mo", "()[]|".includes(token) ? { stretchy: "false" } : {}, token === "-" ? "−" : token === "*" ? "∗" : token));
};

const space = (width) => ml("mspace", { width: `${width}em` });

const delimiter = (source) => {
  const token = source.next();
  if (token === null) throw new Error("a delimiter is missing");
  return token === "." ? "" : token.startsWith("\\") ? operators[token.slice(1)] ?? token.slice(1) : token;
};

const fenced = (source) => {
  const open = delimiter(source);
  const nodes = [];
  while (source.peek() !== "\\right") {
    if (source.peek() === null) throw new Error("\\left without \\right");
    if (source.takes("\\middle")) nodes.push(fenceOf(delimiter(source)));
    else nodes.push(...many(source, (token) => token === "\\right" || token === "\\middle"));
  }
  source.next();
  return ml("mrow", {}, fenceOf(open), ...nodes, fenceOf(delimiter(source)));
};

// ---- commands

const fraction = (source, attributes = {}) => {
  const above = group(source);
  return ml("mfrac", attributes, above, group(source));
};

const words = (text) => ml("mtext", {}, text.replace(/\\([\\{}$%&#_ ])/g, "$1").replace(/ /g, "\u00a0"));
const named = (text) => ml("mi", { mathvariant: "normal" }, text);

const commands = {
  frac: (s) => fraction(s), dfrac: (s) => ml("mstyle", { displaystyle: "true" }, fraction(s)), tfrac: (s) => ml("mstyle", { displaystyle: "false" }, fraction(s)), cfrac: (s) => fraction(s),
  binom: (s) => ml("mrow", {}, fenceOf("("), fraction(s, { linethickness: "0" }), fenceOf(")")),
  sqrt: (s) => {
    const index = s.option();
    return index === null ? ml("msqrt", {}, group(s)) : ml("mroot", {}, group(s), parsed(index, s.depth));
  },
  left: fenced,
  begin: (s) => environment(s),
  text: (s) => words(s.raw()), textrm: (s) => words(s.raw()), textit: (s) => words(s.raw()), textbf: (s) => words(s.raw()), mbox: (s) => words(s.raw()), tag: (s) => words(`  (${s.raw()})`),
  mathrm: (s) => named(s.raw()), operatorname: (s) => named(s.raw()), mathit: (s) => ml("mi", {}, s.raw()),
  overset: (s) => over(s), stackrel: (s) => over(s),
  underset: (s) => {
    const below = group(s);
    return ml("munder", {}, group(s), below);
  },
  xrightarrow: (s) => ml("mover", {}, ml("mo", { stretchy: "true" }, "→"), group(s)),
  not: (s) => ml("mo", {}, `${row(atom(s).nodes).textContent}\u0338`),
  pmod: (s) => ml("mrow", {}, space(1), ml("mo", {}, "("), named("mod"), space(.3), group(s), ml("mo", {}, ")")),
  bmod: () => ml("mo", { lspace: ".25em", rspace: ".25em" }, "mod"),
  phantom: (s) => ml("mphantom", {}, group(s)),
  boxed: (s) => ml("mrow", { class: "math-box" }, group(s)),
  mathop: (s) => group(s), mathbin: (s) => group(s), mathrel: (s) => group(s), mathord: (s) => group(s),
  substack: (s) => rows(new Source(s.raw()), "math-rows"),
  color: (s) => (s.raw(), ml("mrow")), textcolor: (s) => (s.raw(), group(s)), label: (s) => (s.raw(), ml("mrow")), hspace: (s) => (s.raw(), space(.5)),
};
for (const name of ["displaystyle", "textstyle", "scriptstyle", "nonumber", "notag", "limits", "nolimits", "quad*"]) commands[name] = () => ml("mrow");
for (const name of ["big", "Big", "bigg", "Bigg", "bigl", "Bigl", "biggl", "Biggl", "bigr", "Bigr", "biggr", "Biggr", "bigm"]) {
  const size = { b: 1.2, B: 1.8 }[name[0]] * (name.toLowerCase().startsWith("bigg") ? 1.5 : 1);
  commands[name] = (s) => ml("mo", { minsize: `${size}em`, maxsize: `${size}em`, stretchy: "true" }, delimiter(s));
}

const over = (source) => {
  const above = group(source);
  return ml("mover", {}, group(source), above);
};

const command = (source, name) => {
  if (Object.hasOwn(commands, name)) return one(commands[name](source));
  if (Object.hasOwn(letters, name)) return one(ml("mi", {}, letters[name]));
  if (Object.hasOwn(upright, name)) return one(named(upright[name]));
  if (Object.hasOwn(operators, name)) return one(ml("mo", "{}|".includes(name) ? { stretchy: "false" } : {}, operators[name]));
  if (Object.hasOwn(large, name)) return { nodes: [ml("mo", large[name].limits ? { movablelimits: "true" } : {}, large[name].sign)], limits: large[name].limits };
  if (Object.hasOwn(functions, name)) return functionNamed(name);
  if (Object.hasOwn(accents, name)) return { nodes: [ml("mover", { accent: "true" }, group(source), ml("mo", { stretchy: `${/wide|over/.test(name)}` }, accents[name]))], limits: name === "overbrace" };
  if (Object.hasOwn(underAccents, name)) return { nodes: [ml("munder", {}, group(source), ml("mo", { stretchy: "true" }, underAccents[name]))], limits: name === "underbrace" };
  if (Object.hasOwn(spaces, name)) return one(space(spaces[name]));
  if (isAlphabet(name)) return one(named(inAlphabet(name, source.raw())));
  throw new Error(`\\${name} is not known`);
};

const functionNamed = (name) => {
  const shown = { limsup: "lim sup", liminf: "lim inf", argmax: "arg max", argmin: "arg min" }[name] ?? name;
  const node = functions[name] ? ml("mo", { movablelimits: "true", lspace: "0", rspace: "0" }, shown) : ml("mi", {}, shown);
  return { nodes: [node], limits: functions[name], isFunction: true };
};

// ---- tables

const tables = { matrix: ["", ""], smallmatrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"], array: ["", ""], cases: ["{", ""],
  aligned: ["", ""], align: ["", ""], "align*": ["", ""], split: ["", ""], gathered: ["", ""], gather: ["", ""], "gather*": ["", ""], equation: ["", ""], "equation*": ["", ""] };
const styles = { cases: "math-left", aligned: "math-aligned", align: "math-aligned", "align*": "math-aligned", split: "math-aligned" };

const rows = (source, style) => {
  const made = [[]];
  const isEnd = (token) => ["&", "\\\\", "\\end"].includes(token);
  for (;;) {
    made.at(-1).push(ml("mtd", {}, ...many(source, isEnd)));
    if (source.takes("&")) continue;
    if (!source.takes("\\\\")) break;
    source.option();
    while (source.takes("\\hline")) { /* lines are not drawn */ }
    if (source.peek() === null || source.peek() === "\\end") break;
    made.push([]);
  }
  return ml("mtable", style ? { class: style } : {}, ...made.map((cells) => ml("mtr", {}, ...cells)));
};

const environment = (source) => {
  const name = source.raw();
  if (!Object.hasOwn(tables, name)) throw new Error(`the environment ${name} is not known`);
  if (name === "array") source.raw();
  while (source.takes("\\hline")) { /* as above */ }
  const table = rows(source, styles[name] ?? "");
  if (!source.takes("\\end") || source.raw() !== name) throw new Error(`\\begin{${name}} without its end`);
  const [open, close] = tables[name];
  return open || close ? ml("mrow", {}, fenceOf(open), table, fenceOf(close)) : table;
};

// ---- the whole

const parsed = (text, depth = 0) => {
  const source = new Source(text);
  source.depth = depth;
  const nodes = /(^|[^\\])\\\\/.test(text) && !/\\begin/.test(text) ? [rows(source, "math-rows")] : many(source, () => false);
  if (source.peek() !== null) throw new Error("something is left over");
  return row(nodes);
};

export const mathNode = (text, display) => {
  try {
    if (text.length > mostCharacters) throw new Error("too long");
    return ml("math", { display: display ? "block" : "inline", alttext: text.trim() }, parsed(text));
  } catch (problem) {
    return element("code", { class: "math-source", title: problem.message }, display ? `$$${text}$$` : `$${text}$`);
  }
};
