// The first page: what could be freed, who waits for whom, and all tables, searched and sorted by the service.
import { approve, plan, resume } from "./actions.js";
import { ask, query } from "./api.js";
import { room, trend } from "./charts.js";
import { at, badge, button, bytes, cell, count, counted, el, fill, moment, money, only, outcome, prose, row, runLink, tableLink, titled } from "./dom.js";

const PAGE = 50;
const ATTENTION = 6;
const state = { offset: 0, runs: [], older: null, typing: null };

export async function show({ who, refresh }) {
  const wanted = { q: at("search").value, problem: at("only").value, sort: at("sort").value, offset: state.offset, limit: PAGE };
  const [report, waiting, newest] = await Promise.all([
    ask(`/api/v1/report?${query(wanted)}`),
    ask(`/api/v1/report?${query({ problem: "person", limit: 200 })}`),
    ask("/api/v1/runs?limit=20"),
  ]);
  showTotals(report, waiting.matching);
  showAttention(waiting, who, refresh);
  only(at("trend"), { days: report.trend, width: room(at("trend")) }, trend);
  showTenants(report, refresh);
  showGhosts(report.ghosts);
  showTables(report);
  showRuns(newest);
  return newest.runs.some((run) => run.outcome === null);
}

function showTotals(report, waiting) {
  const { totals } = report;
  const files = totals.files.orphan + totals.files.expired;
  const tiles = [
    { value: bytes(totals.waste_bytes), words: `reclaimable now, in ${counted(files, "file")}`, main: true },
    { value: money(totals.cost_per_month, report.currency), words: "is what that costs in a month" },
    { value: bytes(totals.freed_bytes_30_days), words: "freed in the last 30 days" },
    { value: bytes(totals.retained_bytes_30_days), words: "deleted in these days, but retained in trash or versions" },
    { value: bytes(totals.bytes.live), words: `live, in ${counted(totals.tables, "table")}` },
    { value: count(waiting), words: waiting === 1 ? "table waits for a person" : "tables wait for a person" },
  ];
  if (totals.leftovers && totals.leftovers.bytes) tiles.push({ value: bytes(totals.leftovers.bytes), words: `in trash, old versions and unfinished uploads, as counted ${moment(oldestCount(report))}` });
  if (totals.planned < totals.tables) tiles.push({ value: count(totals.tables - totals.planned), words: "tables were never planned" });
  fill(at("totals"), tiles, (tile) => tile.words.replace(/[\d,.]+/g, ""), (tile) =>
    el("div", { class: tile.main ? "main" : "" }, el("span", {}, tile.value), tile.words));
}

// A tenant's name shows its tables.
function showTenants(report, refresh) {
  const narrow = (name) => { at("search").value = `${name}/`; state.offset = 0; refresh(); at("tables-title").scrollIntoView(); };
  fill(at("tenants"), report.tenants.slice(0, 10), (part) => part.name, (part) => row(
    cell(button(part.name, () => narrow(part.name), "link"), "name"), cell(bytes(part.waste_bytes), "number"),
    cell(money(part.cost_per_month, report.currency), "number"), cell(bytes(part.freed_bytes_30_days), "number"),
    cell(bytes(part.retained_bytes_30_days), "number")));
  titled(at("tenants"));
}

const oldestCount = (report) => report.leftover_counts.map((one) => one.counted_at).sort()[0];

function showAttention(waiting, who, refresh) {
  at("attention-section").hidden = !waiting.tables.length;
  const all = at("attention").dataset.all === "yes";
  at("attention-more").hidden = all || waiting.tables.length <= ATTENTION;
  const rows = all ? waiting.tables : waiting.tables.slice(0, ATTENTION);
  fill(at("attention"), rows.map((one) => ({ ...one, role: who.role })), (one) => one.table, (one) =>
    el("li", {},
      el("div", { class: "buttons" }, tableLink(one.table), badge(one.why.code),
        el("span", { class: "quiet" }, one.bytes ? `${bytes(one.waste_bytes)} deletable` : ""), ...actionsFor(one, refresh)),
      el("p", {}, ...prose(one.problem || "")),
      one.why.advice && !one.why.approvable ? el("p", { class: "quiet" }, ...prose(one.why.advice)) : null));
}

function actionsFor(one, refresh) {
  if (one.role !== "operate") return [];
  if (one.why.approvable) return [button("Review and approve", () => approve(one.last_run_id, one.table, refresh), "primary")];
  if (one.why.scope) return [button("Resume", () => resume(one.why.scope, refresh))];
  return one.table.endsWith("/*") ? [] : [button("Plan again", () => plan(one.table, refresh))];
}

function showGhosts(ghosts) {
  at("ghosts-section").hidden = !ghosts.length;
  fill(at("ghosts"), ghosts.slice(0, 50), (ghost) => ghost.location, (ghost) => el("li", {},
    el("div", { class: "path" }, String(ghost.location)),
    el("p", { class: "quiet" }, `${ghost.format}, ${bytes(ghost.bytes)} in ${counted(ghost.files, "file")}, last changed ${moment(ghost.newest_modified_at)}`)));
}

function showTables(report) {
  fill(at("tables"), report.tables, (one) => one.table, (one) => row(
    cell(tableLink(one.table), "name"), cell(one.format, "quiet"),
    cell(one.bytes ? bytes(one.waste_bytes) : "–", "number"), cell(one.bytes ? bytes(one.bytes.live) : "–", "number"),
    cell(money(one.cost_per_month, report.currency), "number"), cell(moment(one.last_planned_at), "time"),
    cell(one.why ? badge(one.why.code, one.problem) : badge(one.last_outcome || "–"))));
  if (!report.tables.length) nothing(at("tables"), report.totals.tables ? "no table matches" : "no tables yet");
  titled(at("tables"));
  const first = report.matching ? state.offset + 1 : 0;
  at("range").textContent = `${count(first)}–${count(state.offset + report.tables.length)} of ${count(report.matching)}`;
  at("previous").disabled = state.offset === 0;
  at("next").disabled = report.next === null;
}

const nothing = (body, words) => fill(body, [{ words }], () => "none", () => row(el("td", { colspan: 7, class: "quiet", role: "cell" }, words)));

function showRuns(newest) {
  const known = new Set(newest.runs.map((run) => run.run_id));
  if (state.runs.length <= newest.runs.length) state.older = newest.next;
  state.runs = [...newest.runs, ...state.runs.filter((run) => !known.has(run.run_id))];
  fill(at("runs"), state.runs, (run) => run.run_id, (run) => row(
    cell(runLink(run.run_id)), cell(moment(run.started_at), "time"), cell(tableLink(run.table), "name"),
    cell(outcome(run)), cell(bytes(run.orphans.bytes), "number"), cell(bytes(run.deleted.bytes), "number"),
    cell(run.reason || "", "quiet path")));
  if (!state.runs.length) nothing(at("runs"), "no runs yet");
  titled(at("runs"));
  at("older").hidden = !state.older;
}

export function listen(refresh) {
  const again = () => { state.offset = 0; refresh(); };
  at("filter").onsubmit = (event) => { event.preventDefault(); again(); };
  at("search").oninput = () => { clearTimeout(state.typing); state.typing = setTimeout(again, 250); };
  at("only").onchange = again;
  at("sort").onchange = again;
  at("previous").onclick = () => { state.offset = Math.max(0, state.offset - PAGE); refresh(); };
  at("next").onclick = () => { state.offset += PAGE; refresh(); };
  at("attention-more").onclick = () => { at("attention").dataset.all = "yes"; refresh(); };
  at("older").onclick = async () => {
    const page = await ask(`/api/v1/runs?limit=20&before=${state.older}`);
    state.runs.push(...page.runs);
    state.older = page.next;
    refresh();
  };
}
