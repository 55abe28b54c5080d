// What was allocated when, and how much of it is still held; dragging over it chooses a window.

import { color } from "./dom.js";
import * as format from "./format.js";

const TOP = 6, BOTTOM = 16, LEFT = 4;
const LEAST = 4; // a shorter drag is a click, pixels

export class Chart {
  // `choose([since, until], isShifted)` is called with a window in nanoseconds; `tell(text)` describes a bar.
  constructor(canvas, choose, tell) {
    Object.assign(this, { canvas, choose, tell, history: null, held: [], window: null, other: null, drag: null, pointed: null });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = [this.x(event), this.x(event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag[1] = this.x(event);
      this.pointed = this.slot(this.time(this.x(event)));
      this.draw();
      this.say();
    });
    canvas.addEventListener("pointerleave", () => { this.pointed = null; this.draw(); this.say(); });
    canvas.addEventListener("pointerup", (event) => this.drop(event.shiftKey));
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
  }

  show(history, window, other) {
    Object.assign(this, { history, window, other });
    this.draw();
    this.say();
  }

  // What was held at points in time, in a scale of its own.
  line(held) {
    this.held = held;
    this.draw();
    this.say();
  }

  get slots() {
    return this.history?.slots ?? [];
  }

  span() {
    const { slots } = this;
    return [slots[0].start_unix_ns, slots.at(-1).end_unix_ns];
  }

  x(event) {
    return event.clientX - this.canvas.getBoundingClientRect().left;
  }

  time(x) {
    if (!this.slots.length) return 0;
    const [start, end] = this.span();
    const part = (x - LEFT) / (this.canvas.clientWidth - 2 * LEFT);
    return start + Math.min(Math.max(part, 0), 1) * (end - start);
  }

  slot(time) {
    const i = this.slots.findIndex((of) => time < of.end_unix_ns);
    return i < 0 ? this.slots.length - 1 : i;
  }

  // A drag chooses whole bars.
  drop(isShifted) {
    const { drag } = this;
    this.drag = null;
    if (!drag || !this.slots.length) return;
    if (Math.abs(drag[1] - drag[0]) < LEAST) { this.draw(); return; }
    const [from, to] = drag.map((x) => this.slot(this.time(x))).sort((a, b) => a - b);
    this.take(from, to, isShifted);
  }

  take(from, to, isShifted = false) {
    const { slots } = this;
    this.choose([slots[from].start_unix_ns, slots[to].end_unix_ns], isShifted);
  }

  key(event) {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key) || !this.slots.length) return;
    event.preventDefault();
    event.stopPropagation();
    const last = this.slots.length - 1, step = event.key === "ArrowRight" ? 1 : -1;
    if (!this.window) { this.take(last, last); return; }
    let from = this.slot(this.window[0]), to = this.slot(this.window[1] - 1);
    const within = (i) => Math.min(Math.max(i, 0), last);
    if (event.shiftKey) to = Math.max(within(to + step), from);
    else { [from, to] = [within(from + step), within(to + step)]; }
    this.take(from, to);
  }

  say() {
    const { slots, history } = this;
    if (!slots.length) { this.tell(history?.why ?? "No history yet."); return; }
    const human = (of) => format.interval(of, history.measure);
    if (this.pointed !== null && slots[this.pointed]) {
      const of = slots[this.pointed];
      const held = of.held ? `, of that still held ${human(of.held)}` : "";
      this.tell(`${format.clock(of.start_unix_ns)} – ${format.clock(of.end_unix_ns)}: ${human(of.allocated)} allocated${held}`);
      return;
    }
    const [start, end] = this.span();
    const shown = this.window
      ? `Window ${format.clock(this.window[0])} – ${format.clock(this.window[1])}`
      : `Allocated per second, ${format.clock(start)} – ${format.clock(end)}; dark: still held`;
    const now = this.held.length > 1 ? ` Line: held, in its own scale, now ${human(this.held.at(-1))}.` : "";
    const highest = slots[this.highest]?.allocated ?? slots[0].allocated;
    this.tell(`${shown}. Highest bar ${format.of(history.measure)(this.most)}/s ${format.around(highest)}; whiskers: ${history.confidence * 100}% intervals.${now}`);
  }

  draw() {
    const { canvas, slots } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const paint = canvas.getContext("2d");
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    canvas.hidden = !slots.length;
    if (!slots.length) return;
    const [start, end] = this.span();
    const across = (time) => LEFT + ((time - start) / (end - start)) * (width - 2 * LEFT);
    const rate = (of, key) => (of[key] * 1e9) / (of.seconds_ns || 1);
    const rates = slots.map((of) => {
      const at = { seconds_ns: of.end_unix_ns - of.start_unix_ns };
      return {
        value: rate({ ...at, n: of.allocated.value }, "n"), low: rate({ ...at, n: of.allocated.low }, "n"),
        high: rate({ ...at, n: of.allocated.high ?? of.allocated.value }, "n"), held: of.held ? rate({ ...at, n: of.held.value }, "n") : 0,
      };
    });
    this.most = Math.max(...rates.map((of) => of.value));
    this.highest = rates.findIndex((of) => of.value === this.most);
    const most = Math.max(...rates.map((of) => Math.min(of.high, 1.5 * this.most))) || 1;
    const base = height - BOTTOM;
    const up = (value) => base - (Math.min(value, most) / most) * (base - TOP);
    for (const [i, of] of slots.entries()) {
      const x = across(of.start_unix_ns), w = Math.max(across(of.end_unix_ns) - x - 1, 1);
      const { value, low, high, held } = rates[i];
      paint.fillStyle = color(i === this.pointed ? "--bar-pointed" : "--bar");
      paint.fillRect(x, up(value), w, base - up(value));
      paint.fillStyle = color("--bar-held");
      paint.fillRect(x, up(held), w, base - up(held));
      if (w >= 4 && value > 0) {
        paint.fillStyle = color("--soft");
        const middle = Math.round(x + w / 2);
        paint.fillRect(middle, up(high), 1, up(low) - up(high));
        paint.fillRect(middle - 1, up(high), 3, 1);
        paint.fillRect(middle - 1, up(low), 3, 1);
      }
    }
    this.drawHeld(paint, start, across, base);
    paint.fillStyle = color("--line");
    paint.fillRect(LEFT, base, width - 2 * LEFT, 1);
    this.ticks(paint, start, end, across, base, width);
    const mark = (window, name, label) => {
      const [x, to] = [across(Math.max(window[0], start)), across(Math.min(window[1], end))];
      paint.fillStyle = color(name);
      paint.globalAlpha = 0.18;
      paint.fillRect(x, 0, Math.max(to - x, 2), base);
      paint.globalAlpha = 1;
      paint.fillRect(x, 0, 1, base);
      paint.fillRect(to, 0, 1, base);
      if (label) paint.fillText(label, x + 4, 10);
    };
    if (this.other) mark(this.other, "--other", "A");
    if (this.window) mark(this.window, "--focus", this.other ? "B" : "");
    if (this.drag) mark(this.drag.map((x) => this.time(x)).sort((a, b) => a - b), "--focus", "");
  }

  // The line, in the band of its intervals.
  drawHeld(paint, start, across, base) {
    const points = this.held.filter((of) => of.time >= start);
    if (points.length < 2) return;
    const most = Math.max(...points.map((of) => of.high ?? of.value)) || 1;
    const to = (of, end) => paint.lineTo(across(of.time), base - ((of[end] ?? of.value) / most) * (base - TOP));
    paint.fillStyle = paint.strokeStyle = color("--other");
    paint.beginPath();
    points.forEach((of) => to(of, "low"));
    points.toReversed().forEach((of) => to(of, "high"));
    paint.globalAlpha = 0.3;
    paint.fill();
    paint.globalAlpha = 1;
    paint.beginPath();
    points.forEach((of) => to(of, "value"));
    paint.lineWidth = 2;
    paint.stroke();
  }

  ticks(paint, start, end, across, base, width) {
    paint.fillStyle = color("--soft");
    paint.font = `11px ${color("--sans")}`;
    paint.textBaseline = "alphabetic";
    const most = Math.max(2, Math.floor(width / 110));
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600].map((s) => s * 1e9);
    const step = steps.find((s) => (end - start) / s <= most) ?? 86400e9;
    for (let time = Math.ceil(start / step) * step; time < end; time += step) {
      const x = across(time);
      const text = format.clock(time);
      paint.fillRect(x, base, 1, 3);
      if (x + 54 < width) paint.fillText(text, x + 3, base + 12);
    }
  }
}
