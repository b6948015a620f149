// How elements are made and kept up to date, and how values look. `append` takes strings as text: nothing from outside
// is ever read as markup.

export const at = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made[name] = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const shown = new WeakMap();

// Make the children of `parent` those of `items`. A child whose item did not change is left alone, so that focus,
// selection and scrolling survive.
export function fill(parent, items, keyOf, make) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item)), text = JSON.stringify(item);
    let node = old.get(key);
    if (!node || shown.get(node) !== text) {
      const fresh = make(item);
      fresh.dataset.key = key;
      shown.set(fresh, text);
      if (node) {
        const focus = node.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
        if (place === node) place = fresh;
        node.replaceWith(fresh);
        if (focus) fresh.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
      }
      node = fresh;
    }
    old.delete(key);
    if (node === place) place = place.nextElementSibling; else parent.insertBefore(node, place);
  }
  for (const gone of old.values()) gone.remove();
}

// The same for one element that is made anew as a whole.
export const only = (parent, item, make) => fill(parent, [item], () => "only", make);

export function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

export const count = (number) => number.toLocaleString("en");
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const moment = (text) => (text ? `${text.slice(0, 16).replace("T", " ")} UTC` : "–");
export const money = (amount, currency) =>
  (amount === null ? "–" : `${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} ${currency}`);

// Rows and cells say what they are: on a narrow screen the stylesheet makes a card of each row, and a browser would
// take them for no table then.
export const row = (...cells) => el("tr", { role: "row" }, ...cells);
export const cell = (content, kind = "") => el("td", { class: kind, role: "cell" }, content);
export const badge = (word, title = "") => el("span", { class: `badge ${word}`, title }, word.replaceAll("_", " "));
// A former table that nobody claims, as `lakesweep ghosts --plan` names it. The service itself never works on one.
export const isGhost = (label) => label.split("/")[1] === "~ghosts";
export const tableLink = (label) => el("a", { href: `#/table/${encodeURIComponent(label)}`, data: { focus: "table" } }, label);
export const runLink = (id) => el("a", { href: `#/run/${id}`, class: "code", data: { focus: "run" } }, id.slice(0, 8));
export const button = (words, onclick, kind = "") => el("button", { type: "button", onclick, class: kind, data: { focus: words } }, words);

// A list with column titles. `!` before one: its column holds numbers.
export function grid(head, rows, label) {
  const titles = head.map((title) => el("th", { scope: "col", role: "columnheader", class: title.startsWith("!") ? "number" : "" }, title.replace("!", "")));
  const body = el("tbody", { role: "rowgroup" }, ...rows);
  const table = el("table", { role: "table" }, el("thead", { role: "rowgroup" }, row(...titles)), body);
  titled(body);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

// Every cell knows the title of its column, for the cards of a narrow screen.
export function titled(body) {
  const titles = [...body.parentElement.tHead.rows[0].cells].map((title) => title.textContent);
  for (const one of body.rows) [...one.cells].forEach((each, index) => { if (each.colSpan === 1) each.dataset.title = titles[index]; });
}

// A sentence in which our own commands look like commands.
export const prose = (text) => String(text).split(/`(lakesweep [^`]*)`/).map((words, index) => (index % 2 ? el("code", {}, words) : words));

export function outcome(run) {
  if (run.refused) return badge(run.refused.code === "failed" ? "failed" : "refused", run.reason || "");
  return badge(run.outcome || "running", run.reason || "");
}
