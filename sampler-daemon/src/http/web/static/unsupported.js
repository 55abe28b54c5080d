// What this samplerd can tell: what it would refuse is not offered, and says why.

import { by } from "./dom.js";

const NEEDS = { difference: "history" };

export function offer({ unsupported }) {
  for (const button of by("kinds").children) set(button, unsupported[button.dataset.kind]);
  for (const button of by("views").children) set(button, unsupported[NEEDS[button.dataset.view] ?? button.dataset.view]);
}

function set(button, why) {
  Object.assign(button, { disabled: Boolean(why), title: why ?? "" });
}

// What is to be seen first.
export const first = ({ unsupported }, kind) => (kind in unsupported ? "alloc" : kind);
