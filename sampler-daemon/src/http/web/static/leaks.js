// Stacks that hold more and more, by how much at least.

import { element } from "./dom.js";
import * as format from "./format.js";
import { sparkline } from "./sparkline.js";
import { around, cell, draw, frames, soft } from "./stacks.js";

export function leaks(answer, head, table) {
  const { total } = answer;
  const per = (bytes) => `${format.signed(bytes, format.bytes)}/s`;
  const confidence = `${answer.confidence * 100}%`;
  head.replaceChildren(
    element("p", {}, element("strong", {}, answer.answer)),
    element("p", {}, `All stacks in the last ${format.duration(answer.end_unix_ns - answer.start_unix_ns)}: ${changed(total.growth)} (${ends(total.growth)}), held ${format.interval(total.held, "space")}`),
    soft(`${format.grouped(answer.growing)} of ${format.plural(answer.stacks_total, "stack")} that changed grew by more than chance explains. The bounds of all stacks hold at once, at ${confidence}.`),
    soft(`Any other stack may have grown by up to ${format.bytes(answer.most_missed)}.`),
    ...answer.notes.map(soft));
  const rows = answer.stacks.map((stack) => {
    const { growth, held, age_ns, kept, history } = stack;
    const row = element("tr", { class: stack.growing ? "grown" : "chance" },
      around(changed(growth), ends(growth)),
      around(per(stack.bytes_per_second.value), `${per(stack.bytes_per_second.low)} … ${per(stack.bytes_per_second.high)}`),
      around(format.bytes(held.value), format.error(held, format.bytes), history.length > 1 ? sparkline(history, heldAt) : ""),
      stack.oldest_ns > 0 ? around(age(age_ns.value), `oldest ${age(stack.oldest_ns)}`) : cell("–"),
      cell(kept ? format.share(kept.value, 1) : "–"),
      frames([...stack.frames].reverse().map(named), stack.site));
    Object.assign(row.dataset, { value: growth.value, low: growth.low, high: growth.high, pid: stack.pid, growing: stack.growing });
    return row;
  });
  draw(table, ["Growth", "Rate", "Held", "Age (median)", "Kept of new"], rows);
}

const heldAt = ({ unix_ns, ...held }) => `${format.clock(unix_ns)}: ${format.interval(held, "space")} held`;
const age = (ns) => (ns === null ? "–" : format.duration(ns));
const changed = ({ value }) => format.signed(value, format.bytes);
const ends = ({ low, high }) => `${format.signed(low, format.bytes)} … ${format.signed(high, format.bytes)}`;
const named = ({ function: name, file, line }) => (file ? `${name}  ${file.split("/").at(-1)}${line ? `:${line}` : ""}` : name);
