// A small line of numbers over time, with their intervals as a band. It begins at zero.

import { by } from "./dom.js";

const WIDTH = 96, HEIGHT = 28; // as in the template

// `points` are { unix_ns, value, low, high }; `say` describes a point.
export function sparkline(points, say) {
  const first = points[0].unix_ns, span = Math.max(points.at(-1).unix_ns - first, 1);
  const most = Math.max(...points.map((of) => of.value), 1);
  const x = (of) => (WIDTH * (of.unix_ns - first)) / span;
  // A wide interval leaves the picture.
  const y = (number) => HEIGHT - (HEIGHT - 2) * Math.min(number / most, 1.1);
  const at = (of, number) => `${x(of).toFixed(1)},${y(number).toFixed(1)}`;
  const svg = by("sparkline").content.firstElementChild.cloneNode(true);
  const [title, band, values] = svg.children;
  title.textContent = [points[0], points.at(-1)].map(say).join("; ");
  band.setAttribute("points", [...points.map((of) => at(of, of.high)), ...points.toReversed().map((of) => at(of, of.low))].join(" "));
  values.setAttribute("points", points.map((of) => at(of, of.value)).join(" "));
  return svg;
}
