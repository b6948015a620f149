"use strict";
// Shows what the API tells; the stop button is all that changes anything. Text from outside goes in as text, never as
// markup.

const REFRESH_SECONDS = 15;
const at = (id) => document.getElementById(id);
const state = { runs: [], older: null };

async function ask(path, method = "GET") {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path, { method, headers: token ? { Authorization: `Bearer ${token}` } : {} });
  const document = await answer.json();
  if (!answer.ok && document.title) throw new Error(document.detail);
  return document;
}

function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

const count = (number) => number.toLocaleString("en");
const moment = (text) => (text ? text.slice(0, 16).replace("T", " ") + " UTC" : "–");

function cell(content, kind = "") {
  const made = document.createElement("td");
  made.className = kind;
  made.append(content);
  return made;
}

function badge(word, title = "") {
  const made = document.createElement("span");
  made.className = `badge ${word}`;
  made.textContent = word.replace("_", " ");
  made.title = title;
  return made;
}

const outcome = (run) => (run ? badge(run.outcome || "running", run.reason || "") : "–");

function row(cells, open) {
  const made = document.createElement("tr");
  made.append(...cells);
  if (open) {
    made.className = "open";
    made.tabIndex = 0;
    made.onclick = open;
    made.onkeydown = (event) => event.key === "Enter" && open();
  }
  return made;
}

function showTables(tables) {
  at("tables").replaceChildren(...tables.map((table) => {
    const last = table.last_run;
    const verdict = table.problem ? badge("failed", table.problem) : table.paused ? badge("paused") : outcome(last);
    return row([
      cell(table.table, "name"), cell(table.format, "quiet"), cell(moment(last && last.started_at), "time"), cell(verdict),
      cell(last ? count(last.deleted.count) : "–", "number"), cell(last ? bytes(last.deleted.bytes) : "–", "number"),
      cell(moment(table.next_due), "time quiet"),
    ], last && (() => open(last.run_id)));
  }));
  if (!tables.length) at("tables").append(row([cell("no tables yet", "quiet")]));
}

function showRuns() {
  at("runs").replaceChildren(...state.runs.map((run) => row([
    cell(moment(run.started_at), "time"), cell(run.table, "name"), cell(outcome(run)),
    cell(count(run.orphans.count), "number"), cell(count(run.deleted.count), "number"),
    cell(bytes(run.deleted.bytes), "number"), cell(run.reason || "", "quiet path"),
  ], () => open(run.run_id))));
  if (!state.runs.length) at("runs").append(row([cell("no runs yet", "quiet")]));
  at("older").hidden = !state.older;
}

function showTotals(tables) {
  const last = tables.map((table) => table.last_run).filter(Boolean);
  const sum = (pick) => last.reduce((all, run) => all + pick(run), 0);
  const totals = [
    ["tables", count(tables.length)],
    ["orphan files, at each table's last run", count(sum((run) => run.orphans.count))],
    ["of them deleted", count(sum((run) => run.deleted.count))],
    ["freed", bytes(sum((run) => run.deleted.bytes))],
    ["live files missing", count(sum((run) => run.missing.count))],
    ["refused or failed", count(last.filter((run) => ["refused", "failed"].includes(run.outcome)).length)],
  ];
  at("totals").replaceChildren(...totals.map(([word, value]) => {
    const made = document.createElement("div");
    const number = document.createElement("span");
    number.textContent = value;
    made.append(number, word);
    return made;
  }));
}

async function allTables() {
  const tables = [];
  let next = null;
  do {
    const page = await ask(`/api/v1/tables?limit=200${next ? `&after=${encodeURIComponent(next)}` : ""}`);
    tables.push(...page.tables);
    next = page.next;
  } while (next && tables.length < 2000);
  return tables;
}

async function show(runId, offset = 0) {
  const run = await ask(`/api/v1/runs/${runId}`);
  at("details").hidden = false;
  at("run-id").textContent = runId;
  const kept = Object.entries(run.kept).map(([verdict, files]) => `${count(files)} ${verdict}`).join(", ");
  at("run-text").textContent = [
    `${run.table}: ${run.outcome || run.phase}.`, run.reason && `${run.reason}.`, `Kept ${kept}.`,
    `Expired ${run.expired_snapshots.length} snapshots. Deleted ${count(run.deleted.count)} files`,
    `(${bytes(run.deleted.bytes)}), spared ${run.spared}, failed ${run.failed.count}.`,
  ].filter(Boolean).join(" ");
  const plan = await ask(`/api/v1/runs/${runId}/plan?offset=${offset}`).catch(() => null);
  const rows = (plan ? plan.orphans.files : []).map((file) => row([
    cell(file.path, "path"), cell(file.kind), cell(file.reason), cell(bytes(file.size_bytes), "number"),
    cell(moment(file.modified_at), "time"),
  ]));
  if (offset) at("files").append(...rows); else at("files").replaceChildren(...rows);
  at("more").hidden = !(plan && plan.next);
  at("more").onclick = () => show(runId, plan.next).catch(tell);
  if (!offset) at("details").scrollIntoView({ behavior: "smooth" });
}

// The address names the open run, so that it can be sent to somebody else.
function open(runId) {
  if (location.hash === `#${runId}`) showNamed(); else location.hash = runId;
}

function showNamed() {
  const runId = location.hash.slice(1);
  if (/^[0-9a-f]{32}$/.test(runId)) show(runId).catch(tell);
}

function tell(error) {
  at("problem").textContent = error.message;
}

async function older() {
  const page = await ask(`/api/v1/runs?before=${state.older}`);
  state.runs.push(...page.runs);
  state.older = page.next;
  showRuns();
}

async function refresh() {
  try {
    const ready = await ask("/readyz");
    at("health").className = `badge ${ready.status}`;
    at("health").textContent = ready.status;
    at("health").title = Object.entries(ready.checks).map((check) => check.join(": ")).join("\n");
    const [tables, newest] = await Promise.all([allTables(), ask("/api/v1/runs")]);
    if (state.runs.length <= newest.runs.length) {
      state.runs = newest.runs;
      state.older = newest.next;
    } else {
      const known = new Set(newest.runs.map((run) => run.run_id));
      state.runs = [...newest.runs, ...state.runs.filter((run) => !known.has(run.run_id))];
    }
    showTables(tables);
    showTotals(tables);
    showRuns();
    at("problem").textContent = "";
  } catch (error) {
    tell(error);
  }
}

at("login").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  refresh();
};
at("stop").onclick = () => {
  if (confirm("End all runs before their next request, and start nothing until somebody resumes?")) {
    ask("/api/v1/stop", "POST").then(refresh).catch(tell);
  }
};
at("older").onclick = () => older().catch(tell);
addEventListener("hashchange", showNamed);
refresh().then(showNamed);
setInterval(refresh, REFRESH_SECONDS * 1000);
