// A conversation is a tree: messages that share a parent are versions of one message. The chosen versions form the
// path that is shown and sent.
import { randomId } from "./dom.js";

export const root = "";

export const childrenOf = (conversation, parent) => Object.values(conversation.messages)
  .filter((message) => message.parent === parent && !message.gone)
  .sort((a, b) => a.made - b.made || (a.id < b.id ? -1 : 1));

export const versionsOf = (conversation, message) => childrenOf(conversation, message.parent);

export const pathOf = (conversation) => {
  const path = [];
  for (let parent = root; ; ) {
    const versions = childrenOf(conversation, parent);
    const next = versions.find((message) => message.id === conversation.chosen[parent]) ?? versions.at(-1);
    if (!next) return path;
    path.push(next);
    parent = next.id;
  }
};

export const choose = (conversation, message) => (conversation.chosen[message.parent] = message.id);

export const addMessage = (conversation, parent, fields) => {
  const made = Math.max(Date.now(), ...childrenOf(conversation, parent).map((message) => message.made + 1));
  const message = { id: randomId(), parent, made, rev: 0, content: "", ...fields };
  conversation.messages[message.id] = message;
  choose(conversation, message);
  return message;
};

// The message stays in storage, marked: a merge would bring back one that is missing.
export const dropMessage = (conversation, message) => {
  Object.assign(message, { gone: true, rev: message.rev + 1 });
  if (conversation.chosen[message.parent] === message.id) delete conversation.chosen[message.parent];
};

// ---- two copies of a conversation, changed in two tabs

const length = (message) => message.content.length + (message.reasoning?.length ?? 0);
const isNewer = (a, b) => (a.rev === b.rev ? length(a) > length(b) : a.rev > b.rev);

// Takes into `mine` what `theirs` has newer. Messages are changed in place, because a stream may write to them.
export const merge = (mine, theirs) => {
  for (const message of Object.values(theirs.messages)) {
    const known = mine.messages[message.id];
    if (!known) mine.messages[message.id] = message;
    else if (isNewer(message, known)) Object.assign(known, message);
  }
  for (const [parent, child] of Object.entries(theirs.chosen)) mine.chosen[parent] ??= child;
  for (const [field, stamp] of [["title", "titled"], ["system", "instructed"]]) {
    if ((theirs[stamp] ?? 0) > (mine[stamp] ?? 0)) [mine[field], mine[stamp]] = [theirs[field], theirs[stamp]];
  }
  mine.changed = Math.max(mine.changed, theirs.changed);
};

// Whether `mine` has something that `theirs` lacks: another tab has overwritten it between its read and its write.
export const hasMore = (mine, theirs) => Object.values(mine.messages).some((message) => {
  const known = theirs.messages[message.id];
  return !known || isNewer(message, known);
});
