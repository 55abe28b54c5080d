// What is always in sight: the daemon, what profiling costs, what was lost, the totals with their intervals.

import { by, element } from "./dom.js";
import * as format from "./format.js";

export function daemon(overview) {
  by("daemon").textContent =
    `samplerd ${overview.version}, pid ${overview.pid}, at ${location.host}, up ${format.duration(overview.uptime_ns)}, ${overview.probe_engine} probes`;
  const cost = by("cost");
  cost.textContent = overview.cost_text;
  const share = overview.cost?.share;
  if (share) cost.title = `${(100 * share.low).toFixed(2)}% … ${(100 * share.high).toFixed(2)}% of their CPU time`;
  const losses = by("losses");
  const each = overview.losses.map(({ reason, count }) => `${reason.replaceAll("_", " ")} ${format.grouped(count)}`);
  if (overview.unseen_calls > 0) each.push(`${format.plural(overview.unseen_calls, "call")} of processes without a slot`);
  losses.textContent = each.length ? each.join(", ") : "none";
  losses.classList.toggle("warn", each.length > 0);
  const blind = by("blind");
  blind.hidden = overview.blind.length === 0;
  blind.firstElementChild.textContent = `Not seen: ${format.plural(overview.blind.length, "limit")}`;
  blind.lastElementChild.replaceChildren(...overview.blind.map((why) => element("li", {}, why)));
}

const WHAT = { alloc: "allocated", live: "allocated and still held", peak: "held at the peak", mapped: "mapped by programs themselves, still mapped" };

export function profile(graph, overview) {
  const { head, measure } = graph;
  const total = by("total");
  const ends = format.range(graph.total, format.of(measure));
  const number = format.isUnmet(graph.total) ? ["Not known yet: "]
    : [element("strong", {}, format.of(measure)(graph.total.value)), ` ${format.around(graph.total)} `, element("span", { class: "soft" }, ends && `(${ends}) `)];
  const parts = [...number, measure === "objects" ? "objects " : "", WHAT[head.kind], when(head)];
  total.replaceChildren(...parts.filter(Boolean));
  Object.assign(total.dataset, { value: graph.total.value, low: graph.total.low, high: graph.total.high });
  const held = head.kind === "alloc" || head.kind === "mapped" ? "" : ` (${format.grouped(head.totals.inuse_space.moments.samples)} held)`;
  const sampled = head.kind === "mapped" ? "every call is counted"
    : `${format.plural(head.samples, "sample")}${held} in ${format.duration(head.duration_ns)}`;
  const done = head.kind === "mapped" ? "mapped" : "allocated";
  const exact = head.exact ? `exactly ${format.bytes(head.exact.alloc_space)} ${done} in ${format.plural(head.exact.alloc_objects, "call")}` : "exact totals not known";
  by("exact").textContent = [exact, sampled, head.kind === "mapped" ? "" : `${head.confidence * 100}% intervals`].filter(Boolean).join(" · ");
  const raised = overview?.raised.length ? `; raised now for pid ${overview.raised.slice(0, 4).join(" ")}${overview.raised.length > 4 ? " and more" : ""}` : "";
  by("sampling").textContent = head.kind === "mapped" ? "counted, not sampled"
    : `one sample per ${format.bytes(head.interval_bytes)}, ${head.strategy}, ${head.estimator}${raised}`;
  const lost = Object.entries(head.lost).filter(([, of]) => of.samples > 0).map(([name, of]) => {
    const space = of.alloc_space ? ` (${format.interval(of.alloc_space, "space")})` : "";
    return `lost: ${name.replaceAll("_", " ")}, ${format.plural(of.samples, "sample")}${space}`;
  });
  by("notes").replaceChildren(...[...lost, ...head.notes].map((note) => element("li", {}, note)));
}

function when({ window, kind }) {
  if (!window) return " since attach";
  if (kind === "peak") return `, at ${format.clock(window.end_unix_ns)}`;
  return ` from ${format.clock(window.start_unix_ns)} to ${format.clock(window.end_unix_ns)}`;
}
