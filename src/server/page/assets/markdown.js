// Markdown to DOM nodes. Nodes are built from text, never from HTML, so model output stays text.

import { copyButton } from "./clipboard.js";
import { element } from "./dom.js";
import { mathNode } from "./math.js";

// ---- inside of a line

const safeLink = (target) => {
  try {
    const url = new URL(target, "https://none.invalid/");
    return ["http:", "https:", "mailto:"].includes(url.protocol) && url.host !== "none.invalid" ? url.href : null;
  } catch {
    return null;
  }
};

const link = (target, ...children) => {
  const href = safeLink(target);
  return href ? element("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children) : element("span", {}, ...children);
};

// Between single dollars only where neither is a price: no space inside, no digit behind.
const maths = [
  [/^\$\$([^]+?)\$\$/, true], [/^\\\[([^]+?)\\\]/, true], [/^\\\(([^]+?)\\\)/, false],
  [/^\$(?=[^\s$])((?:\\[^]|[^\\$\n])*?(?:\\[^]|[^\s\\$]))\$(?!\d)/, false],
];
const mathAt = (rest) => {
  for (const [pattern, display] of maths) {
    const match = rest.match(pattern);
    if (match) return [match[0].length, mathNode(match[1], display)];
  }
  return null;
};

const marks = [
  [/^`(`*)([^]*?[^`])`\1(?!`)/, (m) => element("code", {}, m[2])],
  [/^\*\*(?=\S)([^]*?\S)\*\*/, (m) => element("strong", {}, ...inline(m[1]))],
  [/^__(?=\S)([^]*?\S)__(?!\w)/, (m) => element("strong", {}, ...inline(m[1]))],
  [/^~~(?=\S)([^]*?\S)~~/, (m) => element("del", {}, ...inline(m[1]))],
  [/^\*(?=[^\s*])([^*]*?[^\s*])\*(?!\*)/, (m) => element("em", {}, ...inline(m[1]))],
  [/^_(?=[^\s_])([^_]*?[^\s_])_(?!\w)/, (m) => element("em", {}, ...inline(m[1]))],
  [/^!?\[([^\]\n]*)\]\(\s*([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"]*")?\s*\)/, (m) => link(m[2], ...inline(m[1] || m[2]))],
  [/^<(https?:\/\/[^\s<>]+)>/, (m) => link(m[1], m[1])],
  [/^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]]/, (m) => link(m[0], m[0])],
];

const inline = (text) => {
  const nodes = [];
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
  };
  for (let at = 0; at < text.length; ) {
    const rest = text.slice(at);
    const math = "$\\".includes(text[at]) ? mathAt(rest) : null;
    if (math) {
      flush();
      nodes.push(math[1]);
      at += math[0];
      continue;
    }
    if (/^\\[\\`*_{}[\]()#+\-.!~|<>$]/.test(rest)) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    const inWord = /\w/.test(text[at - 1] ?? "");
    const found = "`*_~![<h".includes(text[at]) && !(inWord && "_h".includes(text[at]))
      ? marks.map(([pattern, make]) => [rest.match(pattern), make]).find(([match]) => match)
      : null;
    if (found) {
      flush();
      nodes.push(found[1](found[0]));
      at += found[0][0].length;
    } else if (/^ {2,}\n|^\n/.test(rest)) {
      flush();
      if (rest.startsWith(" ")) nodes.push(element("br"));
      else plain += "\n";
      at += rest.indexOf("\n") + 1;
    } else {
      plain += text[at++];
    }
  }
  flush();
  return nodes;
};

// ---- code

const words = new Set(("and as async await auto bool break case catch char class const constexpr continue def default del do double elif else " +
  "enum except export extends false False final finally float fn for from func function if impl import in int interface is lambda let " +
  "long match mod mut namespace new None not null nullptr or package pass private protected pub public raise return self short " +
  "static string struct super switch template this throw trait true True try type typedef typename union unsigned use using var void " +
  "where while with yield").split(" "));

const highlight = (code, language) => {
  const hash = /^(py|python|sh|bash|zsh|ruby|rb|yaml|yml|toml|r|perl|make|dockerfile|cmake|ini)$/i.test(language);
  const comment = hash ? "#[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)";
  const pattern = new RegExp(`(${comment})|("(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?)|\\b(\\d[\\w.]*)\\b|\\b([A-Za-z_]\\w*)\\b`, "g");
  const node = element("code");
  let last = 0;
  for (const match of code.matchAll(pattern)) {
    const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "number" : words.has(match[4]) ? "word" : null;
    if (!kind) continue;
    node.append(code.slice(last, match.index), element("span", { class: `hl-${kind}` }, match[0]));
    last = match.index + match[0].length;
  }
  node.append(code.slice(last));
  return node;
};

const codeBlock = (code, language) => {
  const plain = code.length > 20000 || /^(|text|txt|plain|md|markdown)$/i.test(language);
  return element("div", { class: "codeblock" },
    element("div", { class: "bar" }, element("span", {}, language || "text"), copyButton(() => code)),
    element("pre", { tabindex: "0" }, plain ? element("code", {}, code) : highlight(code, language)));
};

// ---- blocks

// Displayed math may span lines, also empty ones.
const mathOpening = (line) => line.match(/^ *(\$\$|\\\[)/)?.[1];
const takeMath = (lines, at) => {
  const opening = mathOpening(lines[at]);
  const closing = opening === "$$" ? "$$" : "\\]";
  const text = lines.slice(at).join("\n").trimStart();
  const end = text.indexOf(closing, 2);
  if (end < 0 || text.slice(end + 2).split("\n")[0].trim()) return null;
  return [element("p", {}, mathNode(text.slice(2, end), true)), at + text.slice(0, end).split("\n").length];
};

const isRule = (line) => /^ {0,3}([-*_])( *\1){2,} *$/.test(line);
const fence = (line) => line.match(/^( {0,3})(`{3,}|~{3,}) *([^`]*)$/);
const item = (line) => line.match(/^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/);
const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
const isTableRule = (line) => line !== undefined && line.includes("-") && /^ *\|?( *:?-+:? *\|)*( *:?-+:? *)\|? *$/.test(line) && line.includes("|");

const startsBlock = (lines, at) => {
  const line = lines[at];
  return /^ {0,3}(#{1,6} |>)/.test(line) || mathOpening(line) || fence(line) || isRule(line) || item(line) || (line.includes("|") && isTableRule(lines[at + 1]));
};

const takeFence = (lines, at) => {
  const [, indent, mark, language] = fence(lines[at]);
  const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},} *$`);
  const body = [];
  let next = at + 1;
  for (; next < lines.length && !closing.test(lines[next]); ++next) body.push(lines[next].replace(new RegExp(`^ {0,${indent.length}}`), ""));
  return [codeBlock(body.join("\n"), language.trim().split(/\s/)[0].replace(/[^\w+#.-]/g, "")), next + 1];
};

const takeTable = (lines, at) => {
  const places = cells(lines[at + 1]).map((rule) => (rule.endsWith(":") ? (rule.startsWith(":") ? "center" : "right") : ""));
  const row = (name, line) => element("tr", {},
    ...cells(line).map((cell, column) => element(name, places[column] ? { class: places[column] } : {}, ...inline(cell))));
  const body = element("tbody");
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|") && lines[next].trim(); ++next) body.append(row("td", lines[next]));
  return [element("div", { class: "table" }, element("table", {}, element("thead", {}, row("th", lines[at])), body)), next];
};

const takeList = (lines, at, depth) => {
  const first = item(lines[at]);
  const ordered = /\d/.test(first[2]);
  const list = element(ordered ? "ol" : "ul", ordered && first[2] !== "1." ? { start: parseInt(first[2], 10) } : {});
  const indent = first[1].length;
  let next = at;
  while (next < lines.length) {
    const match = item(lines[next]);
    if (!match || match[1].length < indent || match[1].length > indent + 3 || /\d/.test(match[2]) !== ordered) break;
    const width = match[1].length + match[2].length + Math.min(match[3].length || 1, 4);
    const body = [match[4].replace(/^\[ \] /, "☐ ").replace(/^\[[xX]\] /, "☑ ")];
    for (++next; next < lines.length; ++next) {
      const line = lines[next];
      const deeper = line.startsWith(" ".repeat(Math.min(width, indent + 2)));
      if (!line.trim()) {
        const after = lines.slice(next + 1).find((l) => l.trim());
        if (after === undefined || !after.startsWith(" ".repeat(indent + 2))) break;
        body.push("");
      } else if (deeper) body.push(line.slice(Math.min(width, line.search(/\S/))));
      else if (item(line) || startsBlock(lines, next)) break;
      else body.push(line);
    }
    const inside = blocks(body, depth + 1);
    // A single paragraph needs no space around it.
    const tight = inside[0]?.nodeName === "P" && !body.includes("");
    list.append(element("li", {}, ...(tight ? [...inside[0].childNodes, ...inside.slice(1)] : inside)));
    while (next < lines.length && !lines[next].trim() && item(lines[next + 1] ?? "")) ++next;
  }
  return [list, next];
};

const blocks = (lines, depth = 0) => {
  if (depth > 12) return [document.createTextNode(lines.join("\n"))];
  const nodes = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const heading = line.match(/^ {0,3}(#{1,6}) +(.*?) *#* *$/);
    let node = null;
    const math = mathOpening(line) ? takeMath(lines, at) : null;
    if (!line.trim()) {
      ++at;
    } else if (math) {
      [node, at] = math;
    } else if (fence(line)) {
      [node, at] = takeFence(lines, at);
    } else if (heading) {
      node = element(`h${Math.min(heading[1].length + 2, 6)}`, {}, ...inline(heading[2]));
      ++at;
    } else if (isRule(line)) {
      node = element("hr");
      ++at;
    } else if (/^ {0,3}>/.test(line)) {
      const body = [];
      for (; at < lines.length && /^ {0,3}>/.test(lines[at]); ++at) body.push(lines[at].replace(/^ {0,3}> ?/, ""));
      node = element("blockquote", {}, ...blocks(body, depth + 1));
    } else if (line.includes("|") && isTableRule(lines[at + 1])) {
      [node, at] = takeTable(lines, at);
    } else if (item(line)) {
      [node, at] = takeList(lines, at, depth);
    } else {
      const body = [line.trimStart()];
      for (++at; at < lines.length && lines[at].trim() && !startsBlock(lines, at); ++at) body.push(lines[at].trimStart());
      node = element("p", {}, ...inline(body.join("\n")));
    }
    if (node) nodes.push(node);
  }
  return nodes;
};

export const renderMarkdown = (text) => blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
