// Tables of stacks: the frames of a row, and the table itself.

import { element } from "./dom.js";

const FRAMES = 6; // shown of a stack; the others are in its title

// A cell with the frames of a stack, leaf first. The function that a reader looks for comes first, if it is known.
export function frames(names, site = "") {
  return element("td", { class: "function", title: names.join("\n") },
    site ? element("strong", { class: "site" }, site) : "",
    ...names.slice(0, FRAMES).map((name) => element("span", { class: "frame" }, name)),
    names.length > FRAMES ? element("span", { class: "soft" }, `… ${names.length - FRAMES} more`) : "");
}

export const cell = (...parts) => element("td", { class: "number" }, ...parts);

// A number, its interval on a line of its own, and what else belongs to it.
export const around = (strong, interval, ...more) => cell(element("strong", {}, strong), element("span", { class: "interval" }, interval), ...more);

export const soft = (text) => element("p", { class: "soft" }, text);

// Draws a table. The last column is the stack. On a narrow page each cell shows its column's title.
export function draw(table, titles, rows) {
  for (const row of rows) titles.forEach((title, i) => { row.cells[i].dataset.title = title; });
  const heads = [...titles, "Stack"].map((title) =>
    element("th", { scope: "col", class: title === "Stack" ? "" : "number" }, title));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
}
