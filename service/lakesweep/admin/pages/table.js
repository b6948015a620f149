// One table: what it holds, what stands in the way, its next cycle, holds, trend, snapshots, runs and settings.
import { approve, explain, pause, plan, resume, run } from "./actions.js";
import { ask, query } from "./api.js";
import { room, stacked, trend } from "./charts.js";
import { at, badge, button, bytes, cell, count, counted, el, grid, isGhost, moment, money, only, outcome, prose, row, runLink } from "./dom.js";

const state = { table: null, readAt: null };
const PARTS = ["head", "next", "holds", "trend", "snapshots", "runs", "explain", "settings"];

export async function show({ name, who, refresh }) {
  if (state.table !== name) {
    Object.assign(state, { table: name, readAt: null });
    at("table-page").replaceChildren();
  }
  const asIfTable = (path) => (isGhost(name) ? null : ask(path).catch(() => null)); // the service has no schedule for a ghost
  const [report, history, settings, detail] = await Promise.all([
    ask(`/api/v1/report?${query({ q: name.slice(0, 200), tenant: name.split("/")[0], limit: 200 })}`),
    ask(`/api/v1/runs?${query({ table: name, limit: 20 })}`),
    asIfTable(`/api/v1/settings?${query({ table: name })}`),
    asIfTable(`/api/v1/table?${query({ table: name })}`),
  ]);
  const found = report.tables.find((one) => one.table === name) || null;
  if (!found && !history.runs.length) throw new Error(`There is no table ${name}.`);
  frame(name);
  only(at("table-head"), { name, found, role: who.role, currency: report.currency }, (shown) => head(shown, refresh));
  part("next", detail, nextCycle);
  part("holds", detail && detail.holds.length ? { holds: detail.holds, role: who.role } : null, (held) => holds(held, refresh));
  part("trend", detail && detail.trend.length > 1 ? { days: detail.trend, width: room(at("table-page")) - 40 } : null, (shown) => section("Over time", trend(shown)));
  part("runs", history.runs, (runs) => section("Runs", runTable(runs)));
  part("settings", settings, (shown) => section("Settings, and where they come from", settingsTable(shown)));
  at("table-explain").hidden = !detail;
  if (detail) readSnapshots(name, history.runs);
  return history.runs.some((one) => one.outcome === null);
}

// What stays while the table is shown, so that a change of one part leaves the others alone.
function frame(name) {
  if (at("table-head")) return;
  at("table-page").append(el("div", { class: "page" }, el("p", {}, el("a", { href: "#/" }, "All tables")),
    ...PARTS.map((id) => el(id === "head" ? "section" : "div", { id: `table-${id}`, hidden: id !== "head" }))));
  at("table-explain").append(explainForm(name));
}

// Any file, whether a plan names it or not: why does it stay?
function explainForm(name) {
  const path = el("input", { id: "explain-path", maxlength: 5000, required: true, autocomplete: "off", spellcheck: "false", placeholder: "full address of a file" });
  const form = el("form", { class: "buttons" }, el("label", { for: "explain-path" }, "File"), path, el("button", {}, "Explain"));
  form.onsubmit = (event) => { event.preventDefault(); explain(path.value.trim(), name); };
  return section("Why does a file stay?", form);
}

function part(id, found, make) {
  at(`table-${id}`).hidden = !found;
  if (found) only(at(`table-${id}`), found, make);
}

const section = (title, ...content) => el("section", {}, el("h3", {}, title), ...content);

// They are read from the table's metadata, so only when the page is opened and after each run.
async function readSnapshots(name, runs) {
  const newest = runs.find((one) => one.outcome !== null);
  const now = newest ? newest.run_id : "";
  if (state.readAt === now) return;
  state.readAt = now;
  let found;
  try { found = await ask(`/api/v1/snapshots?${query({ table: name })}`); } catch (error) { found = { problem: error.message }; }
  if (state.table === name) part("snapshots", found, (shown) => section("Snapshots, and why each stays", snapshotTable(shown)));
}

function snapshotTable(found) {
  if (found.problem) return el("p", { class: "quiet" }, `They cannot be read now: ${found.problem}`);
  const words = `${counted(found.total, "snapshot")}, of which the next run expires ${count(found.expiring)}.`;
  const shown = found.snapshots.length < found.total ? ` The newest ${count(found.snapshots.length)} are shown.` : "";
  const rows = found.snapshots.map((one) => row(cell(one.id, "code path"), cell(moment(one.committed_at), "time"),
    cell(badge(one.expires ? "expires" : "stays")), cell(one.pins.join(", "), "path"), cell(one.why, "path")));
  return el("div", { class: "tall" }, el("p", { class: "quiet" }, words + shown), found.skipped ? el("p", {}, found.skipped) : null,
    grid(["Snapshot", "Committed", "Next run", "Held by", "Why"], rows, "Snapshots of this table"));
}

function head({ found, name, role, currency }, refresh) {
  return el("div", {}, el("h2", {}, name), found ? summary(found, currency) : null, ...actions(found, name, role, refresh));
}

function summary(found, currency) {
  const words = [
    found.format, found.location, found.last_planned_at ? `planned ${moment(found.last_planned_at)}` : "never planned",
    found.bytes ? `${bytes(found.waste_bytes)} deletable, ${money(found.cost_per_month, currency)} a month` : null,
  ].filter(Boolean).join(" · ");
  return el("div", {}, el("p", { class: "quiet path" }, words), found.bytes ? stacked(found.bytes, `What ${found.table} holds`) : null,
    found.why ? el("p", { class: "path" }, badge(found.why.code), " ", ...prose(found.problem)) : null,
    found.why && found.why.advice && !found.why.approvable ? el("p", { class: "quiet path" }, ...prose(found.why.advice)) : null);
}

function actions(found, name, role, refresh) {
  if (role !== "operate") return [];
  if (isGhost(name)) return [el("p", { class: "quiet" }, "A ghost: a directory of a former table. Its runs below have the button to approve a plan; only the command `lakesweep run --ghosts --execute` deletes it.")];
  const held = found && found.why && found.why.scope;
  const buttons = [
    found && found.why && found.why.approvable ? button("Review and approve", () => approve(found.last_run_id, name, refresh), "primary") : null,
    button("Plan now", () => plan(name, refresh)),
    button("Run", () => run(name, found, refresh)),
    held ? button("Resume", () => resume(found.why.scope, refresh)) : button("Pause", () => pause(name, refresh)),
  ];
  return [el("div", { class: "buttons" }, ...buttons.filter(Boolean))];
}

function nextCycle(detail) {
  const facts = [
    ["Next cycle", moment(detail.next_due)],
    detail.next_expiry ? ["Next expiry", moment(detail.next_expiry)] : null,
    detail.next_listing ? ["Next listing", moment(detail.next_listing)] : null,
    ["Why then", detail.next_because],
  ].filter(Boolean);
  return section("What comes next", el("dl", {}, ...facts.flatMap(([word, value]) => [el("dt", {}, word), el("dd", {}, value)])));
}

function holds({ holds: found, role }, refresh) {
  const rows = found.map((one) => row(cell(one.scope, "path"), cell(moment(one.since), "time"),
    cell(one.ends_at ? moment(one.ends_at) : "when resumed", "time"), cell(one.by || "an administrator", "path"), cell(one.reason || "–", "path"),
    cell(role === "operate" ? button("Resume", () => resume(one.scope, refresh)) : "–")));
  return section("Holds", grid(["What is held", "Since", "Ends", "By", "Reason", "Action"], rows, "Holds of this table"));
}

function runTable(runs) {
  if (!runs.length) return el("p", { class: "quiet" }, "no runs yet");
  const rows = runs.map((one) => row(cell(runLink(one.run_id)), cell(moment(one.started_at), "time"), cell(outcome(one)),
    cell(counted(one.expired_snapshots.length, "snapshot"), "number"), cell(bytes(one.orphans.bytes), "number"),
    cell(`${count(one.deleted.count)} · ${bytes(one.deleted.bytes)}`, "number"), cell(one.reason || "", "quiet path")));
  const titles = ["Run", "Started", "Outcome", "!Expired", "!Deletable", "!Deleted", "Reason"];
  return grid(titles, rows, "Runs of this table");
}

function settingsTable(settings) {
  const rows = settings.settings.map((one) => row(cell(one.name, "code path"), cell(JSON.stringify(one.value), "path"), cell(one.level, "quiet")));
  return grid(["Setting", "Value", "From"], rows, "Settings of this table");
}
