// One run: how it goes or went, what its plan holds, and its files, searched by the service.
import { approve, cancel, explain, restore } from "./actions.js";
import { ask, query } from "./api.js";
import { stacked } from "./charts.js";
import { at, badge, button, bytes, cell, count, counted, el, fill, grid, moment, only, outcome, prose, row, runLink, tableLink, titled } from "./dom.js";

const FILES = 100;
const state = { run: null, offset: 0, q: "", typing: null };

export async function show({ name, who, refresh }) {
  if (!/^[0-9a-f]{32}$/.test(name)) throw new Error("That is not the id of a run.");
  if (state.run !== name) { Object.assign(state, { run: name, offset: 0, q: "" }); at("run-page").replaceChildren(); }
  const run = await ask(`/api/v1/runs/${name}`);
  const [actions, plan, groups, batches] = await Promise.all([
    ask(`/api/v1/runs/${name}/actions`),
    ask(`/api/v1/runs/${name}/plan?${query({ offset: state.offset, limit: FILES, q: state.q })}`).catch(() => null),
    ask(`/api/v1/runs/${name}/groups`).catch(() => null),
    ask(`/api/v1/runs/${name}/batches`).catch(() => null),
  ]);
  const undone = actions.restorable ? await takenBack(run) : null;
  frame(name, refresh);
  only(at("run-head"), { run, actions, undone, role: who.role, digest: plan && plan.digest }, (found) => head(found, refresh));
  only(at("run-batches"), batches, (found) => batchTable(found));
  only(at("run-groups"), groups, (found) => groupTables(found));
  at("run-files-section").hidden = !plan;
  if (plan) showFiles(plan, run.table);
  return run.outcome === null;
}

// What the table's last runs have brought back of this one; null if none tried. All of it is there again once a single
// restore has found or restored as many files as were deleted.
async function takenBack(run) {
  const { runs } = await ask(`/api/v1/runs?${query({ table: run.table, limit: 50 })}`);
  const tries = runs.filter((one) => one.restored && one.restored.run_id === run.run_id);
  if (!tries.length) return null;
  return {
    count: tries.reduce((sum, one) => sum + one.restored.count, 0),
    by: tries.filter((one) => one.restored.count).map((one) => one.run_id),
    whole: tries.some((one) => one.restored.count + one.restored.already_there >= run.deleted.count),
  };
}

// What stays while the run is shown: a search field that is typed in must not be made anew.
function frame(name, refresh) {
  if (at("run-head")) return;
  const again = () => { state.offset = 0; refresh(); };
  const search = el("input", { type: "search", id: "file-search", maxlength: 200, placeholder: "part of a path" });
  search.oninput = () => { state.q = search.value; clearTimeout(state.typing); state.typing = setTimeout(again, 250); };
  at("run-page").append(el("div", { class: "page" },
    el("p", {}, el("a", { href: "#/" }, "All tables")),
    el("section", { id: "run-head" }), el("div", { id: "run-batches" }), el("div", { id: "run-groups" }),
    el("section", { id: "run-files-section", "aria-labelledby": "files-title" }, el("h3", { id: "files-title" }, "Files that the plan names"),
      el("label", {}, "Search ", search),
      grid(["File", "Kind", "Reason", "!Size", "Changed", "Why"], [], "Files of the plan"),
      el("nav", { class: "pager", "aria-label": "Pages of files" },
        button("Previous", () => { state.offset = Math.max(0, state.offset - FILES); refresh(); }),
        el("span", { id: "file-range", "aria-live": "polite" }),
        button("Next", () => { state.offset += FILES; refresh(); })))));
  at("run-files-section").querySelector("tbody").id = "files";
}

function head({ run, actions, undone, role, digest }, refresh) {
  const kept = Object.entries(run.kept).map(([verdict, files]) => `${count(files)} ${verdict} (${bytes(run.kept_bytes[verdict])})`).join(", ");
  const facts = [
    ["Table", tableLink(run.table)], ["Outcome", outcome(run)], ["Phase", run.phase],
    ["Started", moment(run.started_at)], ["Ended", moment(run.finished_at)],
    ["Plan", `${counted(run.orphans.count, "file")}, ${bytes(run.orphans.bytes)}`],
    ["Deleted", `${counted(run.deleted.count, "file")}, ${bytes(run.deleted.bytes)}`],
    run.retained_bytes.trash ? ["Moved to the trash", bytes(run.retained_bytes.trash)] : null,
    run.retained_bytes.versions ? ["Kept as versions", `${bytes(run.retained_bytes.versions)}, until the bucket's lifecycle lets them go`] : null,
    undone && undone.count ? ["Taken back", el("span", {}, `${counted(undone.count, "file")} by ${undone.by.length === 1 ? "run" : "runs"}`, ...undone.by.flatMap((id) => [" ", runLink(id)]))] : null,
    ...run.warnings.map((warning) => ["Warning", warning]),
    ["Expired", counted(run.expired_snapshots.length, "snapshot")],
    ["Kept", kept], ["Spared", count(run.spared)], ["Failed", count(run.failed.count)],
    ["Missing live files", count(run.missing.count)],
    run.engine ? ["Engine", `${run.engine.kind}: ${run.engine.why}`] : null, digest ? ["Digest of the plan", digest] : null,
  ].filter(Boolean);
  const buttons = role !== "operate" ? [] : [
    actions.cancellable ? button("Cancel this run", () => cancel(run.run_id, refresh), "danger") : null,
    actions.restorable && !(undone && undone.whole) ? button("Restore its files", () => restore(run.run_id, run.table, refresh)) : null,
    actions.approvable ? button("Review and approve", () => approve(run.run_id, run.table, refresh), "primary") : null,
  ].filter(Boolean);
  return el("div", {}, el("h2", {}, "Run ", el("code", {}, run.run_id)),
    run.refused ? el("p", {}, badge(run.refused.code), " ", ...prose(run.refused.reason || "")) : null,
    actions.advice ? el("p", { class: "quiet path" }, ...prose(actions.advice)) : null,
    run.orphans.count || run.kept.live ? stacked(verdicts(run), "What the plan says of all files of the table") : null,
    el("dl", {}, ...facts.flatMap(([word, value]) => [el("dt", {}, word), el("dd", { class: "path" }, value)])),
    el("div", { class: "buttons" }, ...buttons));
}

// All files that were listed, by what becomes of them.
function verdicts(run) {
  const expired = (run.orphans.by_reason.expired || { bytes: 0 }).bytes;
  return { ...run.kept_bytes, expired, orphan: run.orphans.bytes - expired };
}

function batchTable(found) {
  if (!found || !found.batches.length) return el("div", {});
  const done = found.batches.filter((batch) => batch.state === "done");
  const deleted = done.reduce((sum, batch) => sum + batch.deleted, 0);
  const rows = found.batches.slice(-20).reverse().map((batch) => row(cell(count(batch.number), "number"), cell(batch.state === "done" ? "done" : "under way"),
    cell(count(batch.count), "number"), cell(count(batch.deleted), "number"), cell(bytes(batch.bytes), "number"), cell(count(batch.failed), "number")));
  return el("section", {}, el("h3", {}, "Batches"),
    el("p", { class: "quiet" }, `${counted(done.length, "batch").replace("batchs", "batches")} done, ${counted(deleted, "file")} deleted`),
    grid(["!Batch", "State", "!Files", "!Deleted", "!Bytes", "!Failed"], rows, "Batches of this run"));
}

function groupTables(found) {
  if (!found) return el("div", {});
  const one = (title, groups) => el("div", {}, el("h3", {}, `By ${title.toLowerCase()}`), grid([title, "!Files", "!Bytes"],
    groups.map((group) => row(cell(group.name, "path"), cell(count(group.count), "number"), cell(bytes(group.bytes), "number"))), `By ${title.toLowerCase()}`));
  return el("section", { class: "thirds" }, one("Reason", found.by_reason), one("Kind", found.by_kind), one("Directory", found.by_directory.slice(0, 12)));
}

function showFiles(plan, table) {
  fill(at("files"), plan.orphans.files, (file) => file.path, (file) => row(
    cell(file.path, "path"), cell(file.kind), cell(file.reason), cell(bytes(file.size_bytes), "number"), cell(moment(file.modified_at), "time"),
    cell(button("Explain", () => explain(file.path, table)))));
  titled(at("files"));
  const [previous, next] = at("run-files-section").querySelectorAll(".pager button");
  const total = plan.matching ?? plan.orphans.count;
  at("file-range").textContent = `${count(total ? state.offset + 1 : 0)}–${count(state.offset + plan.orphans.files.length)} of ${count(total)}`;
  previous.disabled = state.offset === 0;
  next.disabled = plan.next === null;
}
