// The page: what is chosen, and what is asked for when that changes.

import { Chart } from "./chart.js";
import { difference } from "./difference.js";
import { by, choose, element } from "./dom.js";
import { Flame } from "./flame.js";
import * as format from "./format.js";
import * as head from "./head.js";
import { Held } from "./held.js";
import { keys } from "./keys.js";
import { leaks } from "./leaks.js";
import { lifetimes } from "./lifetimes.js";
import { first, offer } from "./unsupported.js";
import { Processes } from "./processes.js";
import { ask, download, Refused } from "./server.js";
import { Table } from "./table.js";
import { Tree } from "./tree.js";

const PERIOD = 5000; // milliseconds between refreshes

const chosen = { kind: "live", measure: "space", view: "flame", process: null, window: null, other: null, live: true };
const shown = { snapshot: null, graph: null, overview: null, tree: null, table: null };
let asking = new AbortController();
let timer = null;
let began = 0; // the last refresh

const flame = new Flame(by("flame-scroll"), by("flame-space"), by("flame"), tell);
const chart = new Chart(by("chart"), pick, (text) => { by("chart-text").textContent = text; });
const held = new Held();
const processes = new Processes(by("processes"), (process) => change({ process: process && `pid ${process.pid}`, pid: process?.pid ?? null }));
const table = new Table(by("table"), by("table-left-out"), (name) => {
  by("search").value = name;
  search();
  change({ view: "flame" });
});

const selector = () => (chosen.pid ? { pid: chosen.pid } : {});
const windowOf = (window) => (window && chosen.kind !== "peak" ? { since: whole(window[0]), until: whole(window[1]) } : {});
// Times are larger than what a number holds to the unit: borders are exact to a millisecond.
const whole = (ns) => String(Math.round(ns / 1e6)) + "000000";

// Says what goes on; why something failed stays until something works.
function say(text, isWrong = false) {
  const state = by("state");
  state.textContent = text;
  state.classList.toggle("wrong", isWrong);
}

// Without the token there is nothing to show.
function refuse(line) {
  say("");
  for (const id of ["facts", "columns", "live", "refresh", "help-button"]) by(id).hidden = true;
  by("refused").hidden = false;
  by("refused").replaceChildren(element("p", {}, `${line[0].toUpperCase()}${line.slice(1)}.`),
    element("p", { class: "soft" }, "It looks like ", element("code", {}, `${location.origin}/#token=…`)));
}

// A samplerd with --windows has no history: everything else is shown.
function nothing(error) {
  if (error.status !== 400) throw error;
  return { slots: [], why: error.message };
}

// Asks for everything that is in sight.
async function refresh() {
  clearTimeout(timer);
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  began = performance.now();
  try {
    const questions = { ...selector(), measure: chosen.measure, kind: chosen.kind };
    // The graph first: samplerd answers one after another, and each is shown when it comes.
    const drawn = ask("/api/graph", { ...questions, ...windowOf(chosen.window) }, signal).then(draw);
    const listed = ask("/api/overview", {}, signal).then((overview) => {
      shown.overview = overview;
      offer(overview);
      head.daemon(overview);
      processes.show(overview.processes, chosen.process);
    });
    const charted = ask("/api/history", { ...selector(), measure: chosen.measure, seconds: by("span").value }, signal).catch(nothing)
      .then((history) => chart.show(history, chosen.window, chosen.view === "difference" ? chosen.other : null));
    await Promise.all([drawn, listed, charted]);
    addHeld();
    head.profile(shown.graph, shown.overview);
    if (chosen.view === "table") await fillTable(signal);
    if (chosen.view === "difference") await fillDifference(signal);
    if (chosen.view in STACKS) await fillStacks(signal);
    if (by("search").value) await find(signal);
    document.body.dataset.ready = Math.round(performance.now() - began);
    say(chosen.live && !chosen.window ? "" : chosen.window ? "window: not refreshed" : "paused");
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Refused)) throw error;
    say(error.message, true);
    if (error.status === 403) { refuse(error.message); return; } // Asking again would not help.
  }
  if (chosen.live && !chosen.window) timer = setTimeout(refresh, PERIOD);
}

// What is held now becomes a point of the line in the history.
function addHeld() {
  const { totals } = shown.graph.head, end = chart.slots.at(-1)?.end_unix_ns;
  if (!end || chosen.window || chosen.kind !== "live") return;
  const now = chosen.measure === "objects" ? totals.inuse_objects : totals.inuse_space;
  chart.line(held.add(`${chosen.process} ${chosen.measure}`, end, now));
}

function draw({ snapshot, graph }) {
  Object.assign(shown, { snapshot, graph, tree: new Tree(graph) });
  head.profile(graph, shown.overview);
  flame.show(shown.tree);
  by("left-out").textContent = graph.left_out ? `${format.plural(graph.left_out, "frame")} with less are not drawn` : "";
  const empty = by("empty");
  empty.hidden = graph.frames.function.length > 0;
  by("flame-scroll").hidden = !empty.hidden;
  if (!empty.hidden) empty.textContent = why(graph.head);
  // How long the first picture took, from the opening of the page on.
  requestAnimationFrame(() => { document.body.dataset.drawn ??= Math.round(performance.now()); });
}

// Why nothing is to be seen.
function why({ kind, samples }) {
  if (kind === "mapped") return "No process has mapped memory by itself since attach.";
  if (samples === 0 && shown.overview?.unsupported.history) return "No sample yet. Allocations are seen in short windows only (--windows): wait.";
  if (samples === 0) return "No sample yet. Allocations smaller than the interval are rarely seen: wait, or choose a smaller one with “sampler set --interval”.";
  return "Nothing of what was sampled is held any more.";
}

// What is known of a frame, -1 is all.
function tell(i) {
  const { tree, graph } = shown;
  if (!tree) return;
  const number = i < 0 ? graph.total : tree.number(i);
  const name = i < 0 ? "all" : tree.name(i);
  const parts = [format.interval(number, graph.measure), `${format.share(number.value, graph.width)} of all`];
  if (i >= 0 && flame.zoomed >= 0 && flame.zoomed !== i) parts.push(`${format.share(number.value, tree.value[flame.zoomed])} of ${tree.name(flame.zoomed)}`);
  parts.push(format.plural(number.samples, "sample"));
  const details = by("details");
  details.replaceChildren(element("strong", { class: "frame-name" }, name), element("span", { class: "soft place" }, i < 0 ? "" : tree.place(i)),
    element("span", { class: "frame-number" }, parts.join(", ")));
  Object.assign(details.dataset, { name, value: number.value, low: number.low, high: number.high });
  by("reset").hidden = flame.zoomed < 0;
  by("flame").dataset.zoomed = flame.zoomed < 0 ? "" : tree.name(flame.zoomed);
}

async function fillTable(signal) {
  const answer = await ask("/api/table", { snapshot: shown.snapshot, measure: chosen.measure }, signal);
  table.show(answer, shown.graph.total.value);
}

// Views of stacks since attach, whatever kind or window is chosen.
const STACKS = { leaks, lifetimes };

async function fillStacks(signal) {
  const { view } = chosen;
  const answer = await ask(`/api/${view}`, selector(), signal);
  STACKS[view](answer, by("stacks-head"), by("stacks"));
}

async function fillDifference(signal) {
  const { slots } = chart;
  const [a, b] = windows(slots);
  by("stacks").replaceChildren();
  if (chosen.kind !== "alloc") {
    by("stacks-head").textContent = "Two windows differ in what was allocated in them: choose allocated (key A). What is held and grows: see Leaks (key L).";
    return;
  }
  if (!a || !b) {
    by("stacks-head").textContent = "A difference needs two windows: wait for a few seconds of history.";
    return;
  }
  chart.show(chart.history, b, a);
  const values = { ...selector(), kind: chosen.kind, since: whole(a[0]), until: whole(a[1]), b_since: whole(b[0]), b_until: whole(b[1]) };
  difference(await ask("/api/difference", values, signal), by("stacks-head"), by("stacks"));
}

// A and B; where nothing is chosen, the older half of the history and the newer one.
function windows(slots) {
  if (slots.length < 2) return [chosen.other, chosen.window];
  const middle = Math.floor(slots.length / 2);
  return [chosen.other ?? [slots[0].start_unix_ns, slots[middle - 1].end_unix_ns],
    chosen.window ?? [slots[middle].start_unix_ns, slots.at(-1).end_unix_ns]];
}

// A window of the chart; with Shift, in the difference, it is A.
function pick(window, isShifted) {
  change(isShifted && chosen.view === "difference" ? { other: window } : { window });
}

async function find(signal) {
  const text = by("search").value;
  const answer = await ask("/api/matches", { snapshot: shown.snapshot, measure: chosen.measure, q: text }, signal);
  if (text !== by("search").value) return;
  flame.match(answer.functions);
  const found = by("found");
  found.hidden = false;
  found.textContent = answer.functions.length === 0 ? `No function matches “${text}”.`
    : `${format.plural(answer.functions.length, "function")} match “${text}”: ${format.interval(answer.total, chosen.measure)}, ` +
      `${format.share(answer.total.value, shown.graph.total.value)} of all, ${format.plural(answer.total.samples, "sample")} in ${format.plural(answer.stacks, "stack")}`;
  Object.assign(found.dataset, { value: answer.total.value, low: answer.total.low, high: answer.total.high, functions: answer.functions.length });
}

let typing = null;
function search() {
  const text = by("search").value;
  table.filter(text);
  clearTimeout(typing);
  if (!text) {
    flame.match(null);
    by("found").hidden = true;
    return;
  }
  typing = setTimeout(() => find(asking.signal).catch((error) => {
    // Its profile is gone: a newer one comes.
    if (error.status === 410) refresh();
    else if (error.name !== "AbortError") say(error.message, true);
  }), 120);
}

function change(values) {
  if (values.view && values.view !== chosen.view) for (const id of ["stacks-head", "stacks"]) by(id).replaceChildren();
  Object.assign(chosen, values);
  choose(by("kinds"), "kind", chosen.kind);
  choose(by("measures"), "measure", chosen.measure);
  choose(by("views"), "view", chosen.view);
  by("flame-box").hidden = chosen.view !== "flame";
  by("table-box").hidden = chosen.view !== "table";
  by("stacks-box").hidden = chosen.view !== "difference" && !(chosen.view in STACKS);
  by("icicle").hidden = chosen.view !== "flame";
  for (const id of ["totals", "about"]) by(id).hidden = !by("stacks-box").hidden;
  for (const id of ["kinds", "measures"]) by(id).hidden = chosen.view in STACKS;
  by("live").setAttribute("aria-pressed", String(chosen.live));
  by("all-time").hidden = !chosen.window && !chosen.other;
  document.body.dataset.view = chosen.view;
  delete document.body.dataset.ready;
  chart.line([]);
  refresh();
}

// Undoes the last thing that narrowed the view.
function back() {
  if (by("search").value && document.activeElement === by("search")) clear();
  else if (chosen.view === "flame" && flame.zoomOut()) return;
  else if (by("search").value) clear();
  else if (chosen.window || chosen.other) change({ window: null, other: null });
}

function clear() {
  by("search").value = "";
  search();
  by("flame").focus();
}

function icicle() {
  flame.turn(!flame.icicle);
  by("icicle").setAttribute("aria-pressed", String(flame.icicle));
}

for (const name of ["kind", "measure", "view"]) {
  by(`${name}s`).addEventListener("click", (event) => {
    const value = event.target.dataset[name];
    if (value) change({ [name]: value });
  });
}
by("search").addEventListener("input", search);
by("search").addEventListener("keydown", (event) => { if (event.key === "Enter") by("flame").focus(); });
by("format").addEventListener("change", async () => {
  const { value } = by("format");
  by("format").value = "";
  const ending = { pprof: "pb.gz", folded: "folded", svg: "svg", csv: "csv", text: "txt", jeprof: "heap", perfetto: "pftrace", otlp: "otlp", speedscope: "speedscope.json" }[value] ?? "json";
  try {
    await download({ snapshot: shown.snapshot, format: value }, `${chosen.kind}.${ending}`);
  } catch (error) {
    say(error.message, true);
  }
});
by("span").addEventListener("change", refresh);
by("refresh").addEventListener("click", refresh);
by("live").addEventListener("click", () => change({ live: !chosen.live }));
by("icicle").addEventListener("click", icicle);
by("reset").addEventListener("click", () => flame.zoomOut());
by("all-time").addEventListener("click", () => change({ window: null, other: null }));

keys({
  "/": () => { by("search").focus(); by("search").select(); },
  Escape: back,
  f: () => change({ view: "flame" }), t: () => change({ view: "table" }),
  l: () => change({ view: "leaks" }), e: () => change({ view: "lifetimes" }), d: () => change({ view: "difference" }),
  h: () => change({ kind: "live" }), a: () => change({ kind: "alloc" }), k: () => change({ kind: "peak" }), m: () => change({ kind: "mapped" }),
  b: () => change({ measure: "space" }), o: () => change({ measure: "objects" }),
  i: icicle, r: refresh, p: () => change({ live: !chosen.live }),
  w: () => by("chart").focus(),
});
// What samplerd can measure decides what is shown first. An error is shown by `refresh`.
ask("/api/overview", {}).then((overview) => change({ kind: first(overview, chosen.kind) }), () => change({}));
