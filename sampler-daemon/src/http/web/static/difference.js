// What changed from window A to window B, and what of it is more than chance.

import { element } from "./dom.js";
import * as format from "./format.js";
import { cell, draw, frames, soft } from "./stacks.js";

export function difference(answer, head, table) {
  const human = (n) => format.bytes(n);
  const rate = answer.per_second ? "/s" : "";
  const side = (of) => `${format.clock(of.start_unix_ns)} – ${format.clock(of.end_unix_ns)} (${format.plural(of.samples, "sample")})`;
  const total = answer.totals.space;
  head.replaceChildren(
    element("p", {}, element("b", { class: "side a" }, "A"), ` ${side(answer.a)}  `, element("b", { class: "side b" }, "B"), ` ${side(answer.b)}`),
    element("p", {}, `All stacks: ${human(total.a)}${rate} → ${human(total.b)}${rate}, `, changed(total, rate)),
    soft(`${format.grouped(answer.significant)} of ${format.plural(answer.tested, "tested stack")} changed by more than chance explains; ` +
      `at most ${answer.false_discovery_rate * 100}% of such by chance (Benjamini–Hochberg). Intervals are pointwise, at ${answer.confidence * 100}%.`),
    soft("Drag over the history for B, with Shift for A; without, its halves are compared."),
    ...(answer.samples === "shared" ? [soft("Blocks in both windows count as independent: intervals are too wide, never too narrow.")] : []));
  const rows = answer.stacks.map((stack) => {
    const { space } = stack;
    const row = element("tr", { class: stack.significant ? (space.value > 0 ? "grown" : "shrunk") : "chance" },
      cell(human(space.a) + rate), cell(human(space.b) + rate), cell(changed(space, rate)),
      cell(space.p_adjusted === null ? element("span", { class: "soft", title: "fewer than 5 samples: not tested" }, "–") : chance(space.p_adjusted)),
      frames([...stack.frames].reverse()));
    Object.assign(row.dataset, { value: space.value, low: space.low, high: space.high, significant: stack.significant });
    return row;
  });
  draw(table, ["A", "B", "Change", "p, adjusted"], rows);
}

function changed(of, rate) {
  return element("span", {}, element("strong", {}, `${format.signed(of.value, format.bytes)}${rate}`),
    element("span", { class: "interval" }, ` (${format.signed(of.low, format.bytes)}${rate} … ${format.signed(of.high, format.bytes)}${rate})`));
}

const chance = (p) => (p <= 1e-9 ? "<1e-9" : p < 1e-3 ? p.toExponential(0) : p.toFixed(3));
