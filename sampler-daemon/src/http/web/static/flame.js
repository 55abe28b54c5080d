// The flame graph on a canvas. Only what is wide enough to see is drawn, so that the number of stacks costs nothing.

import { color } from "./dom.js";

const ROW = 19;
const LEAST = 0.4; // narrower frames are not drawn, pixels
const COLORS = 8;

export class Flame {
  // `scroll` scrolls, `space` has the height of everything, `canvas` stays in sight; `tell(i)` says which frame is meant, -1 all.
  constructor(scroll, space, canvas, tell) {
    Object.assign(this, { scroll, space, canvas, tell, tree: null, zoomed: -1, focused: -1, hovered: null, matched: null, icicle: false });
    this.modules = new Map(); // the number of each module's color
    scroll.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(scroll);
    canvas.addEventListener("pointermove", (event) => this.hover(this.at(event)));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const i = this.at(event);
      if (i !== null) { this.focused = i; this.zoom(i); }
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.palette = null; this.draw(); });
  }

  // Shows another tree, at the same place as far as it has that.
  show(tree) {
    const zoomed = this.tree && this.zoomed >= 0 ? this.tree.path(this.zoomed) : [];
    const focused = this.tree && this.focused >= 0 ? this.tree.path(this.focused) : [];
    const isNew = !this.tree;
    this.tree = tree;
    this.zoomed = tree.find(zoomed);
    this.focused = tree.find(focused);
    this.hovered = null;
    this.matched = null;
    this.colorModules();
    this.layout();
    if (isNew) this.toWidest();
    this.said();
  }

  match(functions) {
    this.matched = functions && new Set(functions);
    const found = functions ? this.widestMatch() : -1;
    if (found >= 0) this.reveal(found);
    this.draw();
  }

  // Of what is zoomed into.
  widestMatch() {
    const { tree, zoomed } = this;
    let best = -1;
    for (let i = Math.max(zoomed, 0); i < (zoomed < 0 ? tree.length : tree.end[zoomed]); i++) {
      if (this.matched.has(tree.functions[i]) && (best < 0 || tree.value[i] > tree.value[best])) best = i;
    }
    return best;
  }

  // Scrolls to a frame.
  reveal(i) {
    const { scroll } = this;
    const y = this.y(i < 0 ? 0 : this.tree.depth[i] + 1);
    if (y < scroll.scrollTop) scroll.scrollTop = y;
    else if (y + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + ROW - scroll.clientHeight;
  }

  turn(icicle) {
    this.icicle = icicle;
    this.layout();
    this.toWidest();
  }

  // Scrolls from the root to the end of the widest path, which says what allocates.
  toWidest() {
    this.scroll.scrollTop = this.icicle ? 0 : this.scroll.scrollHeight;
    let leaf = -1;
    for (let next = this.tree.widestChild(-1); next >= 0; next = this.tree.widestChild(next)) leaf = next;
    this.reveal(leaf);
    this.draw();
  }

  layout() {
    this.rows = this.tree.deepest + 2;
    this.space.style.height = `${this.rows * ROW}px`;
    this.draw();
  }

  said() {
    this.tell(this.hovered ?? this.focused);
  }

  hover(i) {
    if (i === this.hovered) return;
    this.hovered = i;
    this.canvas.style.cursor = i === null ? "default" : "pointer";
    this.draw();
    this.said();
  }

  zoom(i) {
    this.zoomed = i;
    this.draw();
    this.said();
  }

  // To the caller of what is zoomed; false if nothing was.
  zoomOut() {
    if (this.zoomed < 0) return false;
    this.zoom(-1);
    return true;
  }

  focus(i) {
    this.focused = i;
    this.hovered = null;
    // What lies outside of the zoomed frame is shown by zooming out to it.
    const { tree } = this;
    while (this.zoomed >= 0 && !(i >= this.zoomed && i < tree.end[this.zoomed])) this.zoomed = tree.parent[this.zoomed];
    this.reveal(i);
    this.draw();
    this.said();
  }

  key(event) {
    if (!this.tree || event.ctrlKey || event.altKey || event.metaKey) return;
    const { tree, focused: at } = this;
    const outward = this.icicle ? "ArrowUp" : "ArrowDown";
    const inward = this.icicle ? "ArrowDown" : "ArrowUp";
    let to = null;
    if (event.key === inward) to = tree.widestChild(at);
    else if (event.key === outward) to = at < 0 ? null : tree.parent[at];
    else if (event.key === "ArrowRight") to = at < 0 ? null : tree.nextSibling(at);
    else if (event.key === "ArrowLeft") to = at < 0 ? null : tree.previousSibling(at);
    else if (event.key === "Home") to = -1;
    else if (event.key === "Enter" || event.key === " ") this.zoom(at);
    else return;
    event.preventDefault();
    if (to !== null && (to >= 0 || event.key === outward || event.key === "Home")) this.focus(to);
  }

  // Top of a row in everything that can be scrolled.
  y(row) {
    const height = Math.max(this.rows * ROW, this.scroll.clientHeight);
    return this.icicle ? row * ROW : height - (row + 1) * ROW;
  }

  range() {
    const { tree, zoomed } = this;
    return zoomed < 0 ? [0, tree.width] : [tree.start[zoomed], tree.value[zoomed]];
  }

  // The frame under a pointer; -1 is all, null nothing.
  at(event) {
    if (!this.tree) return null;
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top + this.scroll.scrollTop;
    const height = Math.max(this.rows * ROW, this.scroll.clientHeight);
    const row = this.icicle ? Math.floor(y / ROW) : Math.floor((height - y) / ROW);
    if (row === 0) return -1;
    const [start, width] = this.range();
    const value = start + ((event.clientX - box.left) / box.width) * width;
    const { tree } = this;
    let i = 0, end = tree.length;
    while (i < end) {
      const inside = tree.start[i] <= value && value < tree.start[i] + tree.value[i];
      if (!inside) { i = tree.end[i]; continue; }
      if (tree.depth[i] + 1 === row) return i;
      end = tree.end[i];
      i += 1;
    }
    return null;
  }

  // Modules keep their colors. The largest new ones come first, each with a color that is free, as long as there is one.
  colorModules() {
    const { tree, modules } = this;
    const sizes = new Map();
    for (let i = 0; i < tree.length; i++) {
      const module = tree.graph.functions[tree.functions[i]][3];
      if (!modules.has(module)) sizes.set(module, (sizes.get(module) ?? 0) + tree.value[i]);
    }
    const used = new Set(modules.values());
    for (const [module] of [...sizes].sort((a, b) => b[1] - a[1])) {
      let hash = 0x811c9dc5;
      for (const byte of new TextEncoder().encode(module)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
      const free = [...Array(COLORS).keys()].map((i) => (hash + i) % COLORS).find((i) => !used.has(i));
      modules.set(module, free ?? hash % COLORS);
      used.add(modules.get(module));
    }
  }

  colorOf(functionIndex) {
    const [name, , , module] = this.tree.graph.functions[functionIndex];
    return name.startsWith("[") || !module ? COLORS : this.modules.get(module);
  }

  draw() {
    if (!this.tree || this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = null;
      this.drawNow();
    });
  }

  drawNow() {
    const { tree, canvas, scroll } = this;
    this.palette ??= [...Array(COLORS + 1).keys()].map((i) => color(`--frame-${i}`));
    const ink = color("--ink"), line = color("--page"), hit = color("--hit"), hitInk = color("--hit-ink"), focusInk = color("--focus");
    const width = scroll.clientWidth, height = scroll.clientHeight, scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const paint = canvas.getContext("2d");
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, width, height);
    paint.font = `12px ${color("--mono")}`;
    paint.textBaseline = "middle";
    const letter = paint.measureText("0").width;
    const [start, whole] = this.range();
    const unit = whole > 0 ? width / whole : 0;
    const top = scroll.scrollTop;
    let drawn = 0;
    const box = (i, row, x, w, fill, label, dim) => {
      const y = this.y(row) - top;
      if (y + ROW < 0 || y > height) return;
      drawn += 1;
      paint.globalAlpha = dim ? 0.5 : 1;
      paint.fillStyle = fill;
      paint.fillRect(x, y, Math.max(w - 1, LEAST), ROW - 1);
      const room = Math.floor((w - 8) / letter);
      if (room >= 2) {
        paint.fillStyle = fill === hit ? hitInk : ink;
        paint.fillText(label.length > room ? `${label.slice(0, room - 1)}…` : label, x + 4, y + ROW / 2);
      }
      const isFocused = i === this.focused && document.activeElement === canvas;
      if (i === this.hovered || isFocused) {
        paint.globalAlpha = 1;
        paint.strokeStyle = isFocused ? focusInk : ink;
        paint.lineWidth = 2;
        paint.strokeRect(x + 1, y + 1, Math.max(w - 3, 1), ROW - 3);
      }
    };
    paint.strokeStyle = line;
    box(-1, 0, 0, width, this.palette[COLORS], "all", this.zoomed >= 0);
    for (let i = 0; i < tree.length;) {
      const x = (tree.start[i] - start) * unit, w = tree.value[i] * unit;
      if (w < LEAST || x + w <= 0 || x >= width) { i = tree.end[i]; continue; }
      const isCaller = i < this.zoomed && tree.end[i] > this.zoomed;
      const left = Math.max(x, 0), right = Math.min(x + w, width);
      const f = tree.functions[i];
      const fill = this.matched?.has(f) ? hit : this.palette[this.colorOf(f)];
      box(i, tree.depth[i] + 1, left, right - left, fill, tree.graph.functions[f][0], isCaller || (this.matched && !this.matched.has(f)));
      i += 1;
    }
    paint.globalAlpha = 1;
    canvas.dataset.drawn = drawn;
    // What lies outside of sight.
    const hint = (rows, mark, y) => {
      if (rows < 1) return;
      const text = `${mark} ${rows} more`, w = text.length * letter + 12;
      paint.fillStyle = line;
      paint.fillRect(width - w - 4, y, w, ROW);
      paint.fillStyle = ink;
      paint.fillText(text, width - w + 2, y + ROW / 2);
    };
    hint(Math.round(top / ROW), "▴", 4);
    hint(Math.round((this.rows * ROW - top - height) / ROW), "▾", height - ROW - 4);
  }
}
