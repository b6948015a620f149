// Where the dashboard begins: who asks, which page the address names, and when to look again.
// Text from outside goes in as text, never as markup; see `dom.js`.
import { ask, Unauthorized, Unreachable } from "./api.js";
import { stopEverything } from "./actions.js";
import { at, moment } from "./dom.js";
import * as overview from "./overview.js";
import * as runPage from "./run.js";
import * as tablePage from "./table.js";

const REFRESH_SECONDS = 10;
const RUNNING_SECONDS = 2;
const state = { who: null, timer: null, seen: null, busy: false, again: false };

// #/ · #/table/acme%2Fprod%2Forders · #/run/0123… ; a bare #0123… is an address that was sent around earlier.
function route() {
  const [, page, name] = location.hash.split("/");
  const bare = /^#([0-9a-f]{32})$/.exec(location.hash);
  if (bare) return { page: "run", name: bare[1] };
  if ((page === "table" || page === "run") && name) {
    try { return { page, name: decodeURIComponent(name) }; } catch { /* not an address of ours */ }
  }
  return { page: "overview" };
}

const PAGES = { overview: [overview, "overview"], table: [tablePage, "table-page"], run: [runPage, "run-page"] };

async function refresh() {
  if (state.busy) { state.again = true; return; }
  state.busy = true;
  clearTimeout(state.timer);
  let running = false;
  try {
    const { page, name } = route();
    for (const [key, [, id]] of Object.entries(PAGES)) at(id).hidden = key !== page;
    await showHealth();
    state.who = await ask("/api/v1/me");
    showWho();
    at("main").hidden = false;
    document.title = name ? `${page === "run" ? `Run ${name.slice(0, 8)}` : name} · Lakesweep` : "Lakesweep";
    running = await PAGES[page][0].show({ name, who: state.who, refresh });
    state.seen = new Date().toISOString();
    document.body.classList.remove("stale");
    tell("");
  } catch (error) {
    if (error instanceof Unauthorized) state.who = null;
    at("main").hidden = state.who === null; // nothing of a token that is not valid any more stays in sight
    if (error instanceof Unreachable) showBadge("unreachable", error.message);
    showWho();
    const since = state.seen ? ` What you see is from ${moment(state.seen)}.` : "";
    tell(error.message + (error instanceof Unreachable ? since : ""));
    document.body.classList.toggle("stale", error instanceof Unreachable);
  } finally {
    state.busy = false;
    state.timer = setTimeout(refresh, (running ? RUNNING_SECONDS : REFRESH_SECONDS) * 1000);
    if (state.again) { state.again = false; refresh(); }
  }
}

async function showHealth() {
  const ready = await ask("/readyz");
  showBadge(ready.status, Object.entries(ready.checks).map((check) => check.join(": ")).join("\n"));
}

function showBadge(word, title) {
  Object.assign(at("health"), { className: `badge ${word}`, textContent: word, title });
}

function showWho() {
  at("who").textContent = state.who ? `${state.who.name}, ${state.who.role}` : "";
  at("stop").hidden = !(state.who && state.who.role === "operate");
  at("login").hidden = state.who !== null;
  at("forget").hidden = !sessionStorage.getItem("token");
}

function tell(words) {
  if (at("problem").textContent !== words) at("problem").textContent = words;
}

at("login").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  refresh().then(() => { if (state.who) at("main").focus({ preventScroll: true }); });
};
at("forget").onclick = () => {
  sessionStorage.removeItem("token");
  location.hash = "";
  location.reload();
};
at("stop").onclick = () => stopEverything(refresh);
overview.listen(refresh);
addEventListener("hashchange", () => { at("notice").replaceChildren(); refresh().then(() => { at("main").focus({ preventScroll: true }); scrollTo(0, 0); }); });
refresh();
