// What was held when, as this page has seen it: samplerd keeps no history of it.

const MOST = 1000; // points of a line

export class Held {
  constructor() {
    this.lines = new Map();
  }

  // Adds a number to the line of a choice, and returns the line. A long line keeps every other point.
  add(choice, time, { value, low, high }) {
    const line = this.lines.get(choice) ?? [];
    if (time > (line.at(-1)?.time ?? 0)) line.push({ time, value, low, high });
    const kept = line.length > MOST ? line.filter((_, i) => i % 2 === 0) : line;
    this.lines.set(choice, kept);
    return kept;
  }
}
