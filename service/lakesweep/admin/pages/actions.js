// Everything that changes something, each behind a question. The service checks again who may do it, and records who did.
import { ask } from "./api.js";
import { at, bytes, counted, el, isGhost, moment } from "./dom.js";

function notice(...words) {
  at("notice").replaceChildren(...words);
}

// A question with a form; `act` is called when it is answered with yes, and what it throws is shown in the dialog.
function question({ title, body, yes, act, ready = () => true, danger = false }) {
  const dialog = at("dialog"), agree = at("dialog-yes");
  at("dialog-title").textContent = title;
  at("dialog-body").replaceChildren(...body);
  at("dialog-problem").textContent = "";
  agree.textContent = yes;
  agree.hidden = !act;
  agree.className = danger ? "danger" : "primary";
  const check = () => { agree.disabled = !ready(); };
  at("dialog-body").oninput = check;
  check();
  at("dialog-no").textContent = act ? "Cancel" : "Close";
  at("dialog-no").onclick = () => dialog.close();
  at("dialog-form").onsubmit = async (event) => {
    event.preventDefault();
    if (!act || !ready()) return;
    agree.disabled = true;
    try {
      notice(...[await act()].flat());
      dialog.close();
    } catch (error) {
      at("dialog-problem").textContent = error.message;
      check();
    }
  };
  dialog.showModal();
}

export function plan(table, refresh) {
  start(table, false, refresh).then((words) => notice(...words)).catch((error) => notice(error.message));
}

async function start(table, execute, refresh) {
  const { run_id: id } = await ask("/api/v1/runs", "POST", { target: table, execute });
  refresh();
  return [`${execute ? "Run" : "Plan"} ${id.slice(0, 8)} of ${table} has begun. `, el("a", { href: `#/run/${id}` }, "Watch it")];
}

export function run(table, row, refresh) {
  const what = row && row.bytes ? `By its last plan, ${bytes(row.waste_bytes)} could be deleted.` : "It was never planned.";
  question({
    title: "Expire and delete now?", yes: "Run", danger: true,
    body: [el("p", {}, el("strong", {}, table)), el("p", {}, `${what} The table is planned again, every guard checks the plan, and what is proven unreferenced is deleted. Where the tenant, dataset or table itself has dry_run = true, nothing is deleted.`)],
    act: () => start(table, true, refresh),
  });
}

export async function approve(runId, table, refresh) {
  let found;
  try {
    found = await ask(`/api/v1/runs/${runId}/plan?limit=10`);
  } catch (error) {
    notice(`The plan cannot be shown, so it cannot be approved: ${error.message}`);
    return;
  }
  const name = el("input", { id: "confirm-name", autofocus: true, autocomplete: "off", spellcheck: "false" });
  const ghost = isGhost(table);
  question({
    title: "Approve this plan?", yes: "Approve", danger: true, ready: () => name.value === table,
    body: [
      el("p", {}, el("strong", {}, table)),
      el("p", {}, `The plan of ${moment(found.created_at)} deletes ${counted(found.orphans.count, "file")}, ${bytes(found.orphans.bytes)}. ${ghost ? GHOST_THEN : TABLE_THEN}`),
      el("p", { class: "path quiet" }, "Digest ", el("code", {}, found.digest)),
      el("p", {}, "The first of them:"),
      el("div", { class: "sample", tabindex: 0, role: "region", "aria-label": "First files of the plan" },
        el("ul", {}, ...found.orphans.files.map((file) => el("li", { class: "path" }, `${bytes(file.size_bytes)}  ${file.path}`)))),
      el("label", { for: "confirm-name" }, `Type the ${ghost ? "ghost" : "table"}'s name to approve`), name,
    ],
    act: async () => {
      const given = await ask(`/api/v1/runs/${runId}/approve`, "POST", { digest: found.digest });
      refresh();
      const done = `Approved by ${given.approved_by} until ${moment(given.expires_at)}.`;
      if (ghost) return `${done} ${GHOST_THEN}`;
      const next = given.remark ? `Nothing is deleted by itself: ${given.remark}. The table's page has the button Run.` : "The table's next cycle starts at once.";
      return [`${done} ${next} `, el("a", { href: `#/table/${encodeURIComponent(table)}` }, "To the table")];
    },
  });
}

const TABLE_THEN = "The next cycle plans the table again and checks everything else again; these files no longer count against the ceilings.";
const GHOST_THEN = "Nothing is deleted by itself: the command `lakesweep run --ghosts --execute` checks again, and deletes exactly these files or none.";

export function pause(table, refresh) {
  const reason = el("input", { id: "pause-reason", autofocus: true, maxlength: 1000, autocomplete: "off" });
  const lasts = el("select", { id: "pause-lasts" }, ...SPANS.map(([words, hours]) => el("option", { value: hours }, words)));
  const at_time = el("input", { id: "pause-until", type: "datetime-local" });
  const until = el("div", { hidden: true }, el("label", { for: "pause-until" }, "Ends at, in this browser's time zone"), at_time);
  lasts.onchange = () => { until.hidden = lasts.value !== "time"; };
  question({
    title: "Pause this table?", yes: "Pause",
    ready: () => reason.value.trim() !== "" && (lasts.value !== "time" || at_time.value !== ""),
    body: [
      el("p", {}, el("strong", {}, table)), el("p", {}, "Nothing is executed on it while it is paused. Plans still work."),
      el("label", { for: "pause-reason" }, "Reason, shown to others"), reason,
      el("label", { for: "pause-lasts" }, "How long"), lasts, until,
    ],
    act: async () => {
      const ends = pauseEnd(lasts.value, at_time.value);
      const { paused } = await ask("/api/v1/pause", "POST", { scope: table, reason: reason.value.trim(), ends_at: ends });
      refresh();
      const hold = paused.find((one) => one.scope === table);
      return `${table} is paused${hold && hold.ends_at ? ` until ${moment(hold.ends_at)}` : ""}.`;
    },
  });
}

const SPANS = [["until somebody resumes it", ""], ["for an hour", 1], ["for a day", 24], ["for 3 days", 72], ["for a week", 168], ["until a time …", "time"]];

// When a pause ends, as it is sent to the service; null for never.
function pauseEnd(lasts, time) {
  if (lasts === "time") return new Date(time).toISOString();
  return lasts ? new Date(Date.now() + lasts * 3600_000).toISOString() : null;
}

export function resume(scope, refresh) {
  question({
    title: "Resume?", yes: "Resume",
    body: [el("p", {}, el("strong", {}, scope)), el("p", {}, "It is cleaned on its schedule again.")],
    act: async () => {
      await ask("/api/v1/resume", "POST", { scope });
      refresh();
      return `${scope} is resumed.`;
    },
  });
}

export function cancel(runId, refresh) {
  question({
    title: "Cancel this run?", yes: "Cancel the run", danger: true,
    body: [el("p", {}, "It ends after its running batches. What it has deleted stays deleted.")],
    act: async () => {
      await ask(`/api/v1/runs/${runId}/cancel`, "POST");
      refresh();
      return `Run ${runId.slice(0, 8)} is ending.`;
    },
  });
}

export async function restore(runId, table, refresh) {
  let found;
  try {
    found = await ask(`/api/v1/runs/${runId}/restore`, "POST", { dry_run: true });
  } catch (error) {
    notice(`Nothing can be restored: ${error.message}`);
    return;
  }
  const lost = found.not_restorable.count;
  question({
    title: "Restore the files of this run?", yes: "Restore",
    body: [
      el("p", {}, el("strong", {}, table)),
      el("p", {}, `${counted(found.restored.count, "file")}, ${bytes(found.restored.bytes)}, are restored to their addresses${lost ? `; ${counted(lost, "file")} cannot` : ""}. The table is paused first, because the next cycle would delete them again; expired snapshots stay expired.`),
    ],
    act: async () => {
      const done = await ask(`/api/v1/runs/${runId}/restore`, "POST", {});
      refresh();
      return [`${counted(done.restored.count, "file")} of ${table} restored; the table is paused. `, el("a", { href: `#/table/${encodeURIComponent(table)}` }, "To the table")];
    },
  });
}

export async function explain(path, table) {
  try {
    const found = await ask(`/api/v1/explain?${new URLSearchParams({ path, table })}`);
    question({ title: found.verdict || "not stored", yes: "", body: [el("p", { class: "path" }, found.path), el("ul", {}, ...found.evidence.map((one) => el("li", { class: "path" }, one)))] });
  } catch (error) {
    notice(error.message);
  }
}

export function stopEverything(refresh) {
  if (confirm("End all runs before their next request, and start nothing until somebody resumes?")) {
    ask("/api/v1/stop", "POST").then(refresh).catch((error) => notice(error.message));
  }
}
