// The call tree, from the columns that samplerd sends: each frame before what it calls.

export class Tree {
  constructor(graph) {
    const { function: functions, depth, value, low, high, samples } = graph.frames;
    const n = functions.length;
    Object.assign(this, { graph, functions, depth, value, low, high, samples, length: n });
    this.start = new Float64Array(n);
    this.end = new Int32Array(n); // behind the last frame below it
    this.parent = new Int32Array(n).fill(-1);
    this.deepest = 0;
    const open = [];
    const at = [0]; // where the next frame of each depth starts
    for (let i = 0; i < n; i++) {
      const d = depth[i];
      while (open.length > d) this.end[open.pop()] = i;
      this.parent[i] = d > 0 ? open[d - 1] : -1;
      this.start[i] = at[d];
      at[d] += value[i];
      at[d + 1] = this.start[i];
      open.push(i);
      if (d > this.deepest) this.deepest = d;
    }
    while (open.length) this.end[open.pop()] = n;
    this.width = graph.width;
  }

  name(i) {
    return this.graph.functions[this.functions[i]][0];
  }

  // Source line and module, as far as they are known.
  place(i) {
    const [, file, line, module] = this.graph.functions[this.functions[i]];
    if (!file) return module;
    return `${line ? `${file}:${line}` : file}${module ? ` in ${module}` : ""}`;
  }

  number(i) {
    return { value: this.value[i], low: this.low[i], high: this.high[i], samples: this.samples[i] };
  }

  // Names from the root to the frame.
  path(i) {
    const names = [];
    for (; i >= 0; i = this.parent[i]) names.unshift(this.name(i));
    return names;
  }

  // The frame of a path, or the nearest of its callers that is there; -1: none.
  find(path) {
    let found = -1, from = 0, to = this.length;
    for (const [depth, name] of path.entries()) {
      let next = -1;
      for (let i = from; i < to; i = this.end[i]) {
        if (this.depth[i] === depth && this.name(i) === name) { next = i; break; }
      }
      if (next < 0) break;
      found = next;
      from = next + 1;
      to = this.end[next];
    }
    return found;
  }

  firstChild(i) {
    const next = i + 1;
    return next < (i < 0 ? this.length : this.end[i]) ? next : -1;
  }

  nextSibling(i) {
    const next = this.end[i];
    return next < this.length && this.depth[next] === this.depth[i] ? next : -1;
  }

  previousSibling(i) {
    let j = this.parent[i] < 0 ? 0 : this.parent[i] + 1;
    let before = -1;
    for (; j < i; j = this.end[j]) before = j;
    return before;
  }

  // The widest of what a frame calls (of everything for -1).
  widestChild(i) {
    let best = -1;
    for (let j = this.firstChild(i); j >= 0; j = this.nextSibling(j)) {
      if (best < 0 || this.value[j] > this.value[best]) best = j;
    }
    return best;
  }
}
