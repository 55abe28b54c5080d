// The keyboard: one letter for everything that a pointer can do.

import { by, element } from "./dom.js";

const KEYS = [
  ["/", "search functions"],
  ["← → ↑ ↓", "walk through the flame graph"],
  ["Enter", "zoom into the frame"],
  ["Esc", "zoom out, then clear the search, then all time"],
  ["Home", "to the root"],
  ["F", "flame graph"],
  ["T", "table of functions"],
  ["L", "leaks: what holds more and more"],
  ["E", "lifetimes: how long memory is held, to its end"],
  ["D", "difference of two windows"],
  ["I", "icicle: root at the top"],
  ["H  A  K  M", "held now, allocated, peak, mapped"],
  ["B  O", "bytes, objects"],
  ["W", "history: arrow keys move a window, Shift widens it"],
  ["R", "refresh"],
  ["P", "pause, or go on"],
  ["?", "this list"],
];

// `actions` by key; typing into fields is left alone.
export function keys(actions) {
  by("keys").replaceChildren(...KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]));
  const help = () => by("help").showModal();
  by("help-button").addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || by("help").open) return;
    const typing = event.target.matches("input, select, textarea");
    if (typing && event.key !== "Escape") return;
    const action = event.key === "?" ? help : actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}
