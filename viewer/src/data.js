// The data that Python wrote into the page, unpacked as far as it is asked for.

const read = (id) => JSON.parse(document.getElementById(id).textContent);

/** A node of a graph; texts are looked up when they are asked for. */
class Node {
  #program;
  #raw;

  constructor(program, number) {
    const raw = program.records[number];
    this.#program = program;
    this.#raw = raw;
    this.number = number;
    this.key = raw[0];
    this.name = program.names[raw[0]];
    this.op = program.strings[raw[1]];
    this.scope = raw[2];
    this.inputs = raw[3];
    this.sources = raw[6];
    this.step = raw[7];
  }

  get outputs() {
    return this.#raw[4].map((i) => this.#program.strings[i]);
  }

  get attrs() {
    const [texts, attrs] = [this.#program.strings, this.#raw[5]];
    return Array.from({ length: attrs.length / 2 }, (_, i) => [texts[attrs[2 * i]], texts[attrs[2 * i + 1]]]);
  }

  get title() {
    return this.op !== "variable" ? this.op : this.#program.inputNames.has(this.name) ? "input" : "parameter";
  }
}

class Program {
  constructor(raw, number) {
    Object.assign(this, raw, { number });
    this.scopes = raw.scopes.map(([label, parent]) => ({ label, parent }));
    this.steps = raw.steps.map((step, index) => this.step(step, index));
    this.slots = raw.slots.map(([role, name, size, offset, first, last], index) => ({ role, name, size, offset, first, last, index }));
    this.inputNames = new Set(raw.slots.filter(([role]) => role === "input").map(([, name]) => name));
    this.measured = this.steps.some((step) => step.seconds !== null);
    this.stepsOfName = new Map();
    for (const step of this.steps)
      for (const name of new Set([...step.nodes, ...step.sources])) {
        if (!this.stepsOfName.has(name)) this.stepsOfName.set(name, []);
        this.stepsOfName.get(name).push(step.index);
      }
    this.graphs = new Map();
  }

  step(raw, index) {
    const buffers = raw.buffers.map(([slot, offset, size, text, written]) => ({ slot, offset, size, text, written }));
    const kernel = raw.kernel >= 0 ? this.kernels[raw.kernel] : null;
    const moved = new Map();
    for (const buffer of buffers) moved.set(`${buffer.slot}:${buffer.offset}`, buffer.size);
    const bytes = [...moved.values()].reduce((a, b) => a + b, 0);
    const operations = kernel?.operations ?? 0;
    const operators = raw.operators.map((op) => this.strings[op]);
    return { ...raw, index, buffers, kernel, bytes, operations, operators, cycles: kernel?.cycles ?? 0 };
  }

  /** A record of a node, with its texts. */
  record(number) {
    return new Node(this, number);
  }

  /** The records of one moment: every node, and where to find one by its name. */
  graph(moment) {
    if (!this.graphs.has(moment)) {
      const nodes = [];
      const packed = this.snapshots[moment].nodes;
      for (let i = 0; i < packed.length; i += 2) for (let j = 0; j < packed[i + 1]; j++) nodes.push(this.record(packed[i] + j));
      this.graphs.set(moment, { nodes, byKey: new Map(nodes.map((node) => [node.key, node])), outputs: new Set(this.snapshots[moment].outputs) });
    }
    return this.graphs.get(moment);
  }

  /** For each name the number of its first record, and the moment that has it. No graph is made for it. */
  get firsts() {
    if (!this.firstOf) {
      this.firstOf = new Map();
      const seen = new Uint8Array(this.records.length);
      this.snapshots.forEach(({ nodes: packed }, moment) => {
        for (let i = 0; i < packed.length; i += 2)
          for (let number = packed[i]; number < packed[i] + packed[i + 1]; number++) {
            if (seen[number]) continue;
            seen[number] = 1;
            const key = this.records[number][0];
            if (!this.firstOf.has(key)) this.firstOf.set(key, { number, moment });
          }
      });
    }
    return this.firstOf;
  }

  /** All names in small letters, for searching. */
  get lower() {
    this.lowerNames ??= this.names.map((name) => name.toLowerCase());
    return this.lowerNames;
  }

  /** The steps that a node became, or is. */
  stepsOf(node) {
    return node.step >= 0 ? [node.step] : this.stepsOfName.get(node.key) ?? [];
  }

  isParameter(node) {
    return node.op === "variable" && !this.inputNames.has(node.name);
  }
}

export const METRICS = {
  time: { label: "Time", unit: "seconds", of: (step) => step.seconds ?? 0 },
  estimate: { label: "Estimated cycles", unit: "count", of: (step) => step.cycles },
  bytes: { label: "Bytes moved", unit: "bytes", of: (step) => step.bytes },
  flops: { label: "FLOPs", unit: "count", of: (step) => step.operations },
};

export function load() {
  const data = read("weft-data");
  let texts;
  return {
    version: data.version,
    programs: data.programs.map((raw, number) => new Program(raw, number)),
    async text(number) {
      texts ??= read("weft-texts");
      const packed = Uint8Array.from(atob(texts[number]), (char) => char.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      return new Response(stream).text();
    },
  };
}

/** How the nodes of one graph differ from those of another, by name: "new" or "changed". */
export function differences(graph, program, other, otherProgram) {
  const byName = new Map(other.nodes.map((node) => [node.name, node]));
  const told = (node, of) => [node.op, node.outputs.join(), JSON.stringify(node.attrs), node.inputs.map((key) => of.names[key]).join("\n")].join("\0");
  const alike = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
  const same = (one, two) => { // numbers of names and texts mean the same in one program
    if (program !== otherProgram) return told(one, otherProgram) === told(two, program);
    const [a, b] = [program.records[one.number], program.records[two.number]];
    return a[1] === b[1] && [3, 4, 5].every((part) => alike(a[part], b[part]));
  };
  const found = new Map();
  let fresh = 0;
  let changed = 0;
  for (const node of graph.nodes) {
    const before = byName.get(node.name);
    if (before?.number === node.number && program === otherProgram) continue; // one record serves both
    if (!before) { found.set(node.key, "new"); fresh++; }
    else if (!same(before, node)) { found.set(node.key, "changed"); changed++; }
  }
  const names = new Set(graph.nodes.map((node) => node.name));
  const gone = other.nodes.filter((node) => !names.has(node.name));
  return { of: found, fresh, changed, gone };
}
