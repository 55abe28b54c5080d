// How long memory is held: what an earlier free would save, by stack.

import { element } from "./dom.js";
import * as format from "./format.js";
import { around, cell, draw, frames, soft } from "./stacks.js";

export function lifetimes(answer, head, table) {
  const { total } = answer;
  head.replaceChildren(
    element("p", {}, `All stacks since attach: half of the bytes live ${median(total.median_ns)}; ${format.share(total.within_1ms.value, 1)} are freed within a millisecond, ${format.share(total.within_1s.value, 1)} within a second.`),
    soft("The first stacks have most bytes × seconds: their memory is large, or is held for long."),
    ...answer.notes.map(soft));
  const rows = answer.stacks.map((stack) => {
    const { byte_seconds: sum } = stack;
    const row = element("tr", {},
      around(bytesSeconds(sum.value), format.error(sum, bytesSeconds)),
      cell(median(stack.median_ns)),
      cell(format.share(stack.within_1ms.value, 1)),
      cell(format.share(stack.within_1s.value, 1)),
      cell(`${format.grouped(stack.freed)} of ${format.grouped(stack.samples)}`),
      frames([...stack.frames].reverse()));
    Object.assign(row.dataset, { value: sum.value, low: sum.low, high: sum.high, pid: stack.pid });
    return row;
  });
  draw(table, ["Bytes × s", "Median life", "< 1 ms", "< 1 s", "Freed samples"], rows);
}

const bytesSeconds = (n) => (n === null || !isFinite(n) ? "∞" : `${format.bytes(n)}·s`);
const time = (ns) => (ns < 1e9 ? format.time(ns) : format.duration(ns));
const median = ({ value, low, high }) => (value === null ? `longer than ${time(low ?? 0)}`
  : `${time(value)} (${time(low ?? 0)} … ${high === null ? "∞" : time(high)})`);
