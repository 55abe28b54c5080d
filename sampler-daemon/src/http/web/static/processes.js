// The processes, each with what it has allocated and what it holds.

import { element } from "./dom.js";
import * as format from "./format.js";

export class Processes {
  // `choose(process)` is called with the chosen one, null for all.
  constructor(list, choose) {
    Object.assign(this, { list, choose });
  }

  show(processes, chosen) {
    const key = (of) => of.dataset.key;
    const focused = this.list.contains(document.activeElement) ? key(document.activeElement) : null;
    const held = (of) => (of.held_known ? of.totals.inuse_space : of.totals.alloc_space).value;
    const running = processes.filter((of) => of.running).sort((a, b) => held(b) - held(a));
    const gone = processes.filter((of) => !of.running);
    const items = [this.item("all", "All processes", null, null, chosen === null)];
    for (const of of [...running, ...gone]) items.push(this.process(of, chosen));
    this.list.replaceChildren(...items);
    [...this.list.querySelectorAll("button")].find((of) => key(of) === focused)?.focus();
  }

  process(of, chosen) {
    const isGroup = !of.pid;
    const key = isGroup ? `group ${of.comm}` : `pid ${of.pid}`;
    const { alloc_space: allocated, inuse_space: held } = of.totals;
    const spent = of.cost?.share;
    const lines = [];
    if (of.held_known) lines.push(this.line("held", held));
    lines.push(format.isUnmet(allocated) ? ["allocated", "not known yet", ""] : this.line("allocated", allocated));
    if (spent) {
      const percent = (x) => `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)}%`;
      lines.push(["cost", `${percent(spent.low)} … ${percent(spent.high)} of its CPU time`, percent(spent.value)]);
    }
    const name = isGroup ? `${of.comm} × ${format.grouped(of.folded)}` : of.comm || "(not known)";
    const about = isGroup ? "exited" : `${of.pid}${of.running ? "" : ", exited"}`;
    const item = this.item(key, name, about, lines, chosen === key, isGroup ? null : of);
    if (of.blind?.length) item.firstChild.title = of.blind.join("\n");
    return item;
  }

  line(label, number) {
    return [label, `${format.bytes(number.value)} ${format.around(number)}`, format.range(number, format.bytes)];
  }

  item(key, name, about, lines, isChosen, process) {
    const button = element("button", { type: "button", "aria-pressed": String(isChosen) },
      element("span", { class: "comm" }, name), about ? element("span", { class: "soft pid" }, ` ${about}`) : "");
    button.dataset.key = key;
    for (const [label, text, title] of lines ?? []) {
      button.append(element("span", { class: "line", title }, element("span", { class: "soft" }, `${label} `), text));
    }
    if (process === null && key !== "all") button.disabled = true;
    else button.addEventListener("click", () => this.choose(key === "all" ? null : process));
    return element("li", {}, button);
  }
}
