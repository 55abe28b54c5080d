// Functions by what they allocate themselves and by all that is under them.

import { element } from "./dom.js";
import * as format from "./format.js";

const COLUMNS = [
  { key: "own", title: "Self", number: (row) => row.own?.value ?? -1 },
  { key: "total", title: "Total", number: (row) => row.total.value },
  { key: "samples", title: "Samples", number: (row) => row.total.samples },
  { key: "function", title: "Function", text: (row) => row.function },
];

export class Table {
  // `find(name)` is called with the function of a row that was chosen.
  constructor(table, more, find) {
    Object.assign(this, { table, more, find, answer: null, sort: "own", falling: true, query: "" });
  }

  show(answer, whole) {
    this.answer = answer;
    this.whole = whole;
    this.draw();
  }

  filter(query) {
    this.query = query.toLowerCase();
    if (this.answer) this.draw();
  }

  draw() {
    const { answer } = this;
    const column = COLUMNS.find(({ key }) => key === this.sort);
    const rows = answer.rows.filter((row) => row.function.toLowerCase().includes(this.query));
    const by = column.number
      ? (a, b) => column.number(a) - column.number(b)
      : (a, b) => column.text(a).localeCompare(column.text(b));
    if (!(this.sort === "own" && this.falling)) rows.sort((a, b) => (this.falling ? -by(a, b) : by(a, b)));
    const head = element("tr", {}, ...COLUMNS.map((of) => this.heading(of)));
    this.table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows.map((row) => this.row(row))));
    const notes = answer.rows.length ? [] : ["No function to list."];
    if (rows.length < answer.rows.length) notes.push(`${format.plural(rows.length, "function")} of ${format.grouped(answer.rows.length)} match`);
    if (answer.left_out > 0) notes.push(`${format.plural(answer.left_out, "function")} with less are not listed (download csv or json for all)`);
    this.more.textContent = notes.join("; ");
  }

  heading(of) {
    const sorted = this.sort === of.key;
    const button = element("button", { type: "button" }, of.title);
    button.addEventListener("click", () => {
      this.falling = sorted ? !this.falling : of.key !== "function";
      this.sort = of.key;
      this.draw();
      [...this.table.querySelectorAll("th button")].find((other) => other.textContent === of.title)?.focus();
    });
    const order = this.falling ? "descending" : "ascending";
    return element("th", { scope: "col", class: of.key === "function" ? "" : "number", "aria-sort": sorted ? order : "none" }, button);
  }

  row(row) {
    const { measure } = this.answer;
    const button = element("button", { type: "button", class: "name", title: "Show in the flame graph" }, row.function);
    button.addEventListener("click", () => this.find(row.function));
    const file = row.file ? `${row.file}${row.line ? `:${row.line}` : ""}` : row.module;
    return element("tr", {},
      this.number(row.own, measure), this.number(row.total, measure),
      element("td", { class: "number" }, format.grouped(row.total.samples)),
      element("td", { class: "function" }, button, element("span", { class: "soft place" }, file)));
  }

  number(number, measure) {
    if (!number) return element("td", { class: "number soft" }, "–");
    const human = format.of(measure);
    const cell = element("td", { class: "number" },
      element("strong", {}, human(number.value)), " ", element("span", { class: "share" }, format.share(number.value, this.whole)),
      element("span", { class: "interval" }, format.error(number, human)));
    cell.dataset.value = number.value;
    cell.dataset.low = number.low;
    cell.dataset.high = number.high;
    return cell;
  }
}
