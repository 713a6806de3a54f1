// A graph as blocks inside blocks, and where everything that can be seen stands. A block is laid out alone, when it is
// opened, so the cost is that of what is visible; what leads out of it goes through a port at its top or bottom.
import * as dagre from "@dagrejs/dagre";
import { shortened, textWidth } from "./dom.js";

const FONT = "600 12px system-ui, sans-serif";
const SMALL = "11px ui-monospace, monospace";
const HEAD = 28;
const PAD = 14;
const ROOT = "s0";
const NONE = Object.freeze([]);

export class Tree {
  constructor(program, graph, { parameters = false } = {}) {
    this.program = program;
    this.graph = graph;
    this.items = new Map();
    this.opened = new Set();
    this.layouts = new Map();
    this.shown = graph.nodes.filter((node) => parameters || !program.isParameter(node));
    this.makeItems();
    this.makeEdges();
  }

  makeItems() {
    const { scopes } = this.program;
    const blocks = scopes.map((scope, number) => {
      const id = `s${number}`;
      return { id, kind: "scope", label: scope.label, parent: scope.parent < 0 ? null : `s${scope.parent}`, children: [], size: 0 };
    });
    for (const block of blocks) this.items.set(block.id, block);
    this.byKey = [];
    for (const node of this.shown) {
      const block = blocks[node.scope];
      const item = { id: `n${node.key}`, kind: "node", node, label: node.op, parent: block.id, children: NONE, size: 1 };
      this.items.set(item.id, item);
      this.byKey[node.key] = item;
      block.children.push(item.id);
      block.size++;
    }
    // Blocks of one part would only be one more frame around it: the part stands for them.
    const depth = (number) => (number < 0 ? 0 : 1 + depth(scopes[number].parent));
    const inner = scopes.map((_, number) => [depth(number), number]).slice(1).sort((a, b) => b[0] - a[0]);
    for (const [, number] of inner) {
      const scope = blocks[number];
      blocks[scopes[number].parent].size += scope.size;
      if (scope.children.length === 1) {
        const child = this.items.get(scope.children[0]);
        child.parent = scope.parent;
        scope.children = [];
        this.items.get(scope.parent).children.push(child.id);
      } else if (scope.children.length) this.items.get(scope.parent).children.push(scope.id);
    }
    this.root = this.items.get(ROOT);
  }

  path(id) {
    const found = [];
    for (let item = this.items.get(id); item; item = this.items.get(item.parent)) found.push(item.id);
    return found.reverse();
  }

  /** For each block: edges between its parts, and the parts that something outside is read by or reads. */
  makeEdges() {
    this.edges = new Map();
    const at = (scope) => {
      if (!this.edges.has(scope)) this.edges.set(scope, { inside: new Map(), enter: new Set(), leave: new Set() });
      return this.edges.get(scope);
    };
    const paths = new Map(); // of blocks, which many nodes have in common
    const above = ({ parent }) => {
      let found = paths.get(parent);
      if (!found) paths.set(parent, (found = this.path(parent)));
      return found;
    };
    for (const node of this.shown) {
      const reader = this.byKey[node.key];
      const to = reader.id;
      const b = above(reader);
      for (const key of node.inputs) {
        const read = this.byKey[key];
        if (!read) continue;
        const from = read.id;
        const a = above(read);
        let depth = 0;
        while (depth + 1 < a.length && depth + 1 < b.length && a[depth + 1] === b[depth + 1]) depth++;
        const name = `${a[depth + 1] ?? from}>${b[depth + 1] ?? to}`;
        const inside = at(a[depth]).inside;
        inside.set(name, (inside.get(name) ?? 0) + 1);
        for (let i = depth + 1; i < a.length; i++) at(a[i]).leave.add(a[i + 1] ?? from);
        for (let i = depth + 1; i < b.length; i++) at(b[i]).enter.add(b[i + 1] ?? to);
      }
    }
  }

  /** The nodes that read each node, by its item. */
  get readers() {
    if (!this.readersOf) {
      this.readersOf = new Map();
      for (const node of this.shown)
        for (const key of node.inputs) {
          const from = this.byKey[key]?.id;
          if (!from) continue;
          if (!this.readersOf.has(from)) this.readersOf.set(from, []);
          this.readersOf.get(from).push(`n${node.key}`);
        }
    }
    return this.readersOf;
  }

  size(item) {
    if (item.kind === "scope") {
      if (this.opened.has(item.id)) {
        const inner = this.layout(item.id);
        return { width: Math.max(inner.width + 2 * PAD, textWidth(item.label, FONT) + 90), height: inner.height + HEAD + PAD };
      }
      const width = Math.max(textWidth(shortened(item.label, 34), FONT), textWidth(`${item.size} nodes`, SMALL)) + 52;
      return { width: Math.max(width, 120), height: 48 };
    }
    const lines = nodeLines(item.node);
    const width = Math.max(textWidth(lines[0], FONT), ...lines.slice(1).map((line) => textWidth(line, SMALL)));
    return { width: Math.max(width + 30, 96), height: 18 + 15 * lines.length };
  }

  /** Where the parts of a block stand, from its own corner on. */
  layout(scope) {
    const known = this.layouts.get(scope);
    if (known) return known;
    const item = this.items.get(scope);
    const edges = this.edges.get(scope) ?? { inside: new Map(), enter: new Set(), leave: new Set() };
    const g = new dagre.graphlib.Graph({ multigraph: false });
    g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 34, edgesep: 12, ranker: item.children.length > 30 ? "longest-path" : "network-simplex" });
    g.setDefaultEdgeLabel(() => ({}));
    for (const id of item.children) g.setNode(id, this.size(this.items.get(id)));
    const ports = scope !== ROOT;
    if (ports && edges.enter.size) g.setNode("in", { width: 6, height: 6 });
    if (ports && edges.leave.size) g.setNode("out", { width: 6, height: 6 });
    const label = (number) => ({ number, weight: Math.min(number, 4) });
    for (const [name, number] of edges.inside) g.setEdge(...name.split(">"), label(number));
    if (ports) for (const id of edges.enter) g.setEdge("in", id, label(1));
    if (ports) for (const id of edges.leave) g.setEdge(id, "out", label(1));
    dagre.layout(g);
    const made = { parts: [], edges: [], ports: {}, width: g.graph().width || 0, height: g.graph().height || 0 };
    for (const id of g.nodes()) {
      const { x, y, width, height } = g.node(id);
      if (id === "in" || id === "out") made.ports[id] = x;
      else made.parts.push({ id, x: x - width / 2, y: y - height / 2, width, height });
    }
    for (const edge of g.edges()) {
      const { points, number } = g.edge(edge);
      made.edges.push({ from: edge.v, to: edge.w, points, number });
    }
    this.layouts.set(scope, made);
    return made;
  }

  /** Opens or closes a block; what stands around it is laid out anew. */
  toggle(id, open = !this.opened.has(id)) {
    if (open) this.opened.add(id);
    else this.opened.delete(id);
    for (let at = id; at; at = this.items.get(at).parent) this.layouts.delete(at);
  }

  /** Opens all blocks around an item. */
  reveal(id) {
    for (const scope of this.path(id).slice(1, -1)) if (!this.opened.has(scope)) this.toggle(scope, true);
  }

  /** Everything that can be seen, in the coordinates of the picture. */
  placed() {
    const boxes = [];
    const lines = [];
    const todo = [{ scope: ROOT, x: 0, y: 0 }];
    const top = this.layout(ROOT);
    while (todo.length) {
      const { scope, x, y } = todo.pop();
      const layout = this.layout(scope);
      const placed = new Map();
      for (const part of layout.parts) {
        const item = this.items.get(part.id);
        const open = this.opened.has(part.id);
        const box = { ...part, x: part.x + x, y: part.y + y, item, open };
        placed.set(part.id, box);
        boxes.push(box);
        if (open) {
          const inner = this.layout(part.id);
          box.innerX = box.x + (part.width - inner.width) / 2;
          box.ports = { in: inner.ports.in === undefined ? undefined : inner.ports.in + box.innerX, out: inner.ports.out === undefined ? undefined : inner.ports.out + box.innerX };
          todo.push({ scope: part.id, x: box.innerX, y: box.y + HEAD });
        }
      }
      for (const edge of layout.edges) {
        const points = edge.points.map((point) => ({ x: point.x + x, y: point.y + y }));
        const from = placed.get(edge.from);
        const to = placed.get(edge.to);
        // An edge meets an open block where its port is, and goes on to the frame from a port inside.
        if (from?.open && from.ports.out !== undefined) points[0] = { x: from.ports.out, y: from.y + from.height };
        if (to?.open && to.ports.in !== undefined) points[points.length - 1] = { x: to.ports.in, y: to.y };
        if (edge.from === "in") points.unshift({ x: layout.ports.in + x, y: y - HEAD });
        if (edge.to === "out") points.push({ x: layout.ports.out + x, y: y + layout.height + PAD });
        lines.push({ id: `${scope}/${edge.from}>${edge.to}`, from: edge.from, to: edge.to, points, number: edge.number });
      }
    }
    return { boxes, lines, width: top.width, height: top.height };
  }
}

/** What stands in the box of a node: its operator, its name, what it gives. */
export function nodeLines(node) {
  const lines = [shortened(node.title, 40), shortened(node.name, 34)];
  if (node.outputs.length) lines.push(shortened(node.outputs[0], 38) + (node.outputs.length > 1 ? ` +${node.outputs.length - 1}` : ""));
  return lines;
}
