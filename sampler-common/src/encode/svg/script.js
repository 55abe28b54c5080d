"use strict";
// Frames are nested <svg> elements in percent of the width, which clip their own text; zooming sets x and width.
// data-v is "start value low high" in units of the measure, data-d the depth.
(() => {
  const root = document.documentElement;
  const say = document.getElementById("say");
  const frames = [...document.querySelectorAll(".f")].map((element, index) => {
    const [start, value, low, high] = element.dataset.v.split(" ").map(Number);
    const name = element.querySelector("title").textContent;
    return { element, index, start, value, low, high, depth: +element.dataset.d, title: name, name: name.split("\n")[0] };
  });
  const whole = frames[0];
  let zoomed = whole, focused = whole, query = "", typing = false;
  const unit = root.dataset.unit;

  if (root.getAttribute("width") === "1200") {
    root.setAttribute("width", "100%");
    root.removeAttribute("viewBox");
  }

  const human = (n) => {
    if (!isFinite(n)) return "unknown";
    const [base, names] = unit.startsWith("byte") ? [1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]] : [1000, ["", "k", "M", "G", "T", "P"]];
    let at = 0;
    while (n >= base - 0.5 && at + 1 < names.length) { n /= base; at++; }
    const digits = at === 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
    return n.toFixed(digits) + (names[at] ? " " + names[at] : "") + (unit === "byte-seconds" ? "·s" : "");
  };
  // Frames come callers first: what a frame calls is from behind it up to its end.
  const open = [];
  for (const frame of [...frames, { depth: -1, index: frames.length }]) {
    while (open.length && open.at(-1).depth >= frame.depth) open.pop().end = frame.index;
    open.push(frame);
  }

  const show = () => {
    for (const frame of frames) {
      const inside = frame.index >= zoomed.index && frame.index < zoomed.end;
      const caller = frame.index < zoomed.index && frame.end > zoomed.index;
      frame.element.classList.toggle("gone", !inside && !caller);
      frame.element.classList.toggle("out", caller);
      if (inside) {
        frame.element.setAttribute("x", (100 * (frame.start - zoomed.start) / zoomed.value).toFixed(4) + "%");
        frame.element.setAttribute("width", (100 * frame.value / zoomed.value).toFixed(4) + "%");
      } else if (caller) {
        frame.element.setAttribute("x", "0%");
        frame.element.setAttribute("width", "100%");
      }
    }
  };
  const tell = (text) => { say.textContent = text; };
  const focus = (frame) => {
    focused.element.setAttribute("tabindex", "-1");
    focused = frame;
    frame.element.setAttribute("tabindex", "0");
    frame.element.focus();
    frame.element.scrollIntoView({ block: "nearest" });
  };
  const zoom = (frame) => { zoomed = frame; show(); focus(frame); };

  const search = (text) => {
    query = text;
    const wanted = text.toLowerCase();
    let count = 0, value = 0, low = 0, high = 0, skip = -1;
    frames.forEach((frame) => {
      const hit = wanted !== "" && frame.name.toLowerCase().includes(wanted);
      frame.element.classList.toggle("hit", hit);
      if (!hit) return;
      count++;
      // What a match calls is in the match already.
      if (frame.index < skip) return;
      skip = frame.end;
      value += frame.value; low += frame.low; high += frame.high;
    });
    if (wanted === "") return tell("");
    // Ends of a sum lie closer together than sums of ends.
    const ends = count && unit !== "difference" ? `: ${human(value)}, at least ${human(low)}, at most ${human(high)} (bounds added, so wider than need be)` : "";
    tell(`${JSON.stringify(text)} is in ${count} frame${count === 1 ? "" : "s"}${ends}${typing ? "  (Enter: done, Esc: end)" : ""}`);
  };
  const type = () => { typing = true; search(""); tell("search: type a part of a name (Enter: done, Esc: end)"); };

  const sibling = (frame, step) => {
    let at = frame.index + step;
    while (at > 0 && at < frames.length && frames[at].depth > frame.depth) at += step;
    return frames[at] && frames[at].depth === frame.depth ? frames[at] : frame;
  };
  const visible = (frame) => !frame.element.classList.contains("gone");
  const moves = {
    ArrowUp: () => (frames[focused.index + 1]?.depth > focused.depth ? frames[focused.index + 1] : focused),
    ArrowDown: () => frames.slice(0, focused.index).findLast((frame) => frame.depth < focused.depth) ?? focused,
    ArrowLeft: () => sibling(focused, -1),
    ArrowRight: () => sibling(focused, 1),
    Home: () => whole,
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey && event.key === "f") { event.preventDefault(); return type(); }
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (typing) {
      if (event.key === "Escape") { typing = false; search(""); }
      else if (event.key === "Enter") { typing = false; search(query); }
      else if (event.key === "Backspace") search(query.slice(0, -1));
      else if (event.key.length === 1) search(query + event.key);
      else return;
      return event.preventDefault();
    }
    if (moves[event.key]) {
      const next = moves[event.key]();
      if (visible(next)) { focus(next); }
    } else if (event.key === "Enter" || event.key === " ") zoom(focused);
    else if (event.key === "Escape") { if (query) search(""); else zoom(whole); }
    else if (event.key === "/") type();
    else return;
    event.preventDefault();
  });
  const ofElement = new Map(frames.map((frame) => [frame.element, frame]));
  const frameOf = (target) => ofElement.get(target.closest?.(".f"));
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#search")) {
      const text = prompt("Part of a function's name:", query);
      if (text !== null) search(text);
    } else if (event.target.closest?.("#reset")) { typing = false; search(""); zoom(whole); }
    else { const frame = frameOf(event.target); if (frame) zoom(frame); }
  });
  const describe = (event) => { const frame = frameOf(event.target); if (frame && !typing && !query) tell(frame.title.split("\n").join("  ")); };
  document.addEventListener("mouseover", describe);
  document.addEventListener("focusin", describe);
})();
