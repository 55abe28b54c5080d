// What this samplerd can tell: what it would refuse is not offered.

import { by } from "./dom.js";

const WHY = {
  live: "Not known: frees are not probed (samplerd --no-live or --max-overhead)",
  peak: "Not known: frees are not probed (samplerd --no-live or --max-overhead)",
  mapped: "Not followed (samplerd --no-mappings or --max-overhead)",
  difference: "Needs a history: allocations are seen in short windows only (samplerd --max-overhead)",
};

export function offer({ kinds, has_history: hasHistory }) {
  for (const button of by("kinds").children) set(button, kinds.includes(button.dataset.kind), WHY[button.dataset.kind]);
  for (const button of by("views").children) set(button, hasHistory || button.dataset.view !== "difference", WHY[button.dataset.view]);
}

function set(button, isOffered, why) {
  Object.assign(button, { disabled: !isOffered, title: isOffered ? "" : why });
}

// What is to be seen first.
export const first = ({ kinds }, kind) => (kinds.includes(kind) ? kind : "alloc");
