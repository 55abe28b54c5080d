// What this samplerd can tell: what it would refuse is not offered, and says why.

import { by } from "./dom.js";

export function offer({ withheld }) {
  for (const button of by("kinds").children) set(button, withheld[button.dataset.kind]);
  for (const button of by("views").children) set(button, button.dataset.view === "difference" ? withheld.history : undefined);
}

function set(button, why) {
  Object.assign(button, { disabled: Boolean(why), title: why ?? "" });
}

// What is to be seen first.
export const first = ({ withheld }, kind) => (kind in withheld ? "alloc" : kind);
