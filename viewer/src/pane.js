// One picture of a graph: boxes and lines in SVG, moved with the pointer, walked with the keyboard.
import { clear, h, s, shortened } from "./dom.js";
import { Tree, nodeLines } from "./tree.js";

const FULL = 500; // so many things are drawn at once; of more, those in the window
const FAMILIES = [
  [/variable/, "data"],
  [/conv|dense|matmul|winograd|attention|lstm|gru|rnn/, "product"],
  [/pool|norm|softmax|sum|mean|max|min|reduce|arg/, "reduce"],
  [/reshape|transpose|concat|split|slice|pad|halo|layout|expand|squeeze|flatten|take|gather|pack/, "move"],
];

export const family = (op) => FAMILIES.find(([pattern]) => pattern.test(op))?.[1] ?? "plain";

export class Pane {
  constructor(app, name) {
    this.app = app;
    this.view = { x: 0, y: 0, scale: 1 };
    this.elements = new Map();
    this.frames = s("g", { class: "frames" }); // of open blocks, below the lines inside them
    this.lines = s("g", { class: "lines" });
    this.boxes = s("g", { class: "boxes" });
    this.world = s("g", {}, this.frames, this.lines, this.boxes);
    this.svg = s("svg", { class: "canvas", tabindex: 0, role: "group", "aria-label": `${name}: arrow keys walk, Enter opens, plus and minus zoom` },
      s("defs", {}, s("marker", { id: `arrow-${name}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 1L7 4L0 7z", class: "arrow" }))),
      this.world);
    this.arrow = `url(#arrow-${name})`;
    this.element = h("div", { class: "pane" }, this.svg);
    this.listen();
  }

  /** Shows a moment of a program; blocks stay open where they were. */
  show(program, moment, options = {}) {
    const graph = program.graph(moment);
    const opened = this.tree && this.tree.program === program ? this.tree.opened : new Set();
    const moved = !this.tree || this.tree.program !== program;
    this.program = program;
    this.moment = moment;
    this.tree = new Tree(program, graph, options);
    for (const id of opened) if (this.tree.items.get(id)?.children.length > 1) this.tree.opened.add(id);
    if (this.selected && !this.tree.items.has(this.selected)) this.selected = null;
    this.refresh();
    if (moved) this.fit();
  }

  refresh() {
    this.placed = this.tree.placed();
    this.byId = new Map(this.placed.boxes.map((box) => [box.id, box]));
    this.heat = this.heatScale();
    for (const [id, element] of this.elements) if (!this.kept(id, element)) { element.remove(); this.elements.delete(id); }
    this.apply();
    this.cull();
  }

  /** Whether what is drawn of an item can stay, maybe at another place. */
  kept(id, element) {
    const box = this.byId.get(id);
    if (!box || element.signature !== this.signature(box)) return false;
    element.setAttribute("transform", `translate(${box.x} ${box.y})`);
    return true;
  }

  signature(box) {
    return [box.width, box.height, box.open, this.app.mark(this, box.item), box.open ? null : this.heat?.(box.item), box.item.id === this.selected, box.item.node?.number, box.item.size].join();
  }

  // The window on the picture

  apply() {
    const { x, y, scale } = this.view;
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    this.svg.classList.toggle("far", scale < 0.45);
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.cull(); });
    }
  }

  fit() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !this.placed) return;
    const scale = Math.min(1, Math.max(0.05, Math.min((width - 40) / this.placed.width, (height - 40) / this.placed.height)));
    const readable = Math.max(scale, Math.min(0.75, (width - 24) / this.placed.width));
    this.view = { scale: readable, x: (width - this.placed.width * readable) / 2, y: scale === readable ? Math.max(20, (height - this.placed.height * scale) / 2) : 20 };
    this.apply();
  }

  zoom(factor, centre) {
    const box = this.svg.getBoundingClientRect();
    const at = centre ?? { x: box.width / 2, y: box.height / 2 };
    const scale = Math.min(2.5, Math.max(0.04, this.view.scale * factor));
    const ratio = scale / this.view.scale;
    this.view = { scale, x: at.x - (at.x - this.view.x) * ratio, y: at.y - (at.y - this.view.y) * ratio };
    this.apply();
  }

  /** Moves an item into the window. */
  centre(id) {
    const box = this.byId.get(id);
    const { width, height } = this.svg.getBoundingClientRect();
    if (!box) return;
    const scale = Math.max(this.view.scale, 0.7);
    this.view = { scale, x: width / 2 - (box.x + box.width / 2) * scale, y: height / 2 - (box.y + Math.min(box.height, 200) / 2) * scale };
    this.apply();
  }

  // Drawing

  inWindow() {
    const { width, height } = this.svg.getBoundingClientRect();
    const { x, y, scale } = this.view;
    const window = { left: (-x - 200) / scale, top: (-y - 200) / scale, right: (width - x + 200) / scale, bottom: (height - y + 200) / scale };
    const all = this.placed.boxes.length + this.placed.lines.length <= FULL;
    return (left, top, right, bottom) => all || (left < window.right && right > window.left && top < window.bottom && bottom > window.top);
  }

  cull() {
    if (!this.placed) return;
    const seen = this.inWindow();
    const wanted = new Set();
    for (const line of this.placed.lines) {
      const xs = line.points.map((point) => point.x);
      const ys = line.points.map((point) => point.y);
      if (!seen(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys))) continue;
      wanted.add(line.id);
      if (!this.elements.has(line.id)) this.add(line.id, this.lines, this.line(line));
    }
    for (const box of this.placed.boxes) {
      if (!seen(box.x, box.y, box.x + box.width, box.y + box.height)) continue;
      wanted.add(box.id);
      if (!this.elements.has(box.id)) this.add(box.id, box.open ? this.frames : this.boxes, this.box(box));
    }
    for (const [id, element] of this.elements) if (!wanted.has(id)) { element.remove(); this.elements.delete(id); }
  }

  add(id, parent, element) {
    this.elements.set(id, element);
    parent.append(element);
  }

  line(line) {
    const points = line.points;
    let d = `M${points[0].x} ${points[0].y}`;
    for (let i = 1; i < points.length - 1; i++) {
      const [a, b] = [points[i], points[i + 1]];
      d += i < points.length - 2 ? `Q${a.x} ${a.y} ${(a.x + b.x) / 2} ${(a.y + b.y) / 2}` : `Q${a.x} ${a.y} ${b.x} ${b.y}`;
    }
    if (points.length === 2) d += `L${points[1].x} ${points[1].y}`;
    const width = 1.1 + Math.min(2.4, Math.log2(line.number) * 0.5);
    return s("path", { d, class: "line", "stroke-width": width, "marker-end": line.to === "out" ? null : this.arrow, "data-from": line.from, "data-to": line.to });
  }

  box(box) {
    const { item } = box;
    const classes = ["box", item.kind, box.open ? "open" : "closed"];
    const mark = this.app.mark(this, item);
    if (mark) classes.push(mark);
    if (item.id === this.selected) classes.push("selected");
    if (item.kind === "node") classes.push(family(item.node.op));
    const heat = box.open ? null : this.heat?.(item) ?? null;
    const group = s("g", { class: classes.join(" "), transform: `translate(${box.x} ${box.y})`, "data-id": box.id, role: "button", "aria-label": this.spoken(box), "aria-expanded": item.kind === "scope" ? String(box.open) : null, style: heat === null ? {} : { "--heat": heat } });
    if (heat !== null) group.classList.add("heated");
    if (item.kind === "scope" && !box.open) group.append(s("rect", { class: "behind", x: 4, y: 4, width: box.width, height: box.height, rx: 8 }));
    group.append(s("rect", { class: "frame", width: box.width, height: box.height, rx: item.kind === "scope" ? 8 : 6 }), s("title", {}, item.kind === "node" ? item.node.name : item.label));
    if (item.kind === "node") {
      group.append(s("rect", { class: "stripe", width: 4, height: box.height - 8, x: 4, y: 4, rx: 2 }));
      nodeLines(item.node).forEach((text, i) => group.append(s("text", { x: 16, y: 19 + 15 * i, class: i ? "small" : "name" }, text)));
    } else {
      group.append(s("text", { class: "sign", x: 14, y: box.open ? 19 : 21 }, box.open ? "−" : "+"), s("text", { class: "name", x: 30, y: box.open ? 19 : 20 }, shortened(item.label, box.open ? 60 : 34)));
      if (!box.open) group.append(s("text", { class: "small", x: 30, y: 36 }, `${item.size} nodes`));
    }
    group.signature = this.signature(box);
    return group;
  }

  spoken(box) {
    const { item } = box;
    return item.kind === "node" ? `${item.node.title} ${item.node.name} ${item.node.outputs[0] ?? ""}` : `block ${item.label}, ${item.size} nodes`;
  }

  // Heat: a share of the hottest thing that can be seen.

  amount(item) {
    const steps = new Set();
    const todo = [item];
    while (todo.length) {
      const at = todo.pop();
      if (at.kind === "node") for (const step of this.program.stepsOf(at.node)) steps.add(step);
      else for (const child of at.children) todo.push(this.tree.items.get(child));
    }
    const { metric } = this.app;
    let sum = 0;
    for (const step of steps) sum += metric.of(this.program.steps[step]);
    return sum;
  }

  heatScale() {
    if (!this.app.metric) return null;
    const amounts = new Map();
    for (const box of this.placed.boxes) if (!box.open) amounts.set(box.id, this.amount(box.item));
    this.hottest = Math.max(0, ...amounts.values());
    return (item) => (this.hottest > 0 && amounts.has(item.id) ? Math.sqrt(amounts.get(item.id) / this.hottest).toFixed(3) : null);
  }

  // What is chosen

  select(id, { open = true } = {}) {
    const before = this.selected;
    this.selected = id;
    for (const [at, on] of [[before, false], [id, true]]) this.elements.get(at)?.classList.toggle("selected", on);
    for (const line of this.lines.children) line.classList.toggle("lit", id !== null && (line.dataset.from === id || line.dataset.to === id));
    if (open) this.app.selected(this, id === null ? null : this.tree.items.get(id));
  }

  toggle(id) {
    const before = this.byId.get(id);
    this.tree.toggle(id);
    this.refresh();
    const after = this.byId.get(id);
    // The middle of the block's upper edge stays where it is on the screen.
    if (before && after) {
      this.view.x += (before.x + before.width / 2 - after.x - after.width / 2) * this.view.scale;
      this.view.y += (before.y - after.y) * this.view.scale;
    }
    this.apply();
    this.app.painted(this);
  }

  /** Opens what is around an item, and goes there. */
  goto(id) {
    if (!this.tree.items.has(id)) return false;
    this.tree.reveal(id);
    this.refresh();
    this.select(id);
    this.centre(id);
    this.app.painted(this);
    return true;
  }

  collapse() {
    this.tree.opened.clear();
    this.tree.layouts.clear();
    if (this.selected && !this.tree.root.children.includes(this.selected)) this.selected = null;
    this.refresh();
    this.fit();
    this.app.painted(this);
  }

  /** Opens one more level of blocks, as long as that can be drawn. */
  expand(most = 400) {
    const closed = this.placed.boxes.filter((box) => box.item.kind === "scope" && !box.open);
    let sum = this.placed.boxes.length;
    for (const box of closed) {
      sum += box.item.children.length;
      if (sum > most) break;
      this.tree.toggle(box.id, true);
    }
    this.refresh();
    this.fit();
    this.app.painted(this);
  }

  walk(key) {
    const now = this.byId.get(this.selected);
    const boxes = this.placed.boxes.filter((box) => !box.open || box.item.kind === "node");
    if (!now) return this.step(boxes.reduce((a, b) => (b.y < a.y || (b.y === a.y && b.x < a.x) ? b : a), boxes[0]));
    const [cx, cy] = [now.x + now.width / 2, now.y + (now.open ? 0 : now.height / 2)];
    const [dx, dy] = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
    let best = null;
    for (const box of boxes) {
      if (box.id === now.id) continue;
      const [x, y] = [box.x + box.width / 2 - cx, box.y + box.height / 2 - cy];
      const ahead = x * dx + y * dy;
      const aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (ahead > 4 && (!best || ahead + 2.5 * aside < best.far)) best = { box, far: ahead + 2.5 * aside };
    }
    if (best) this.step(best.box);
  }

  step(box) {
    if (!box) return;
    this.select(box.id);
    const { x, y, scale } = this.view;
    const { width, height } = this.svg.getBoundingClientRect();
    const inside = box.x * scale + x > 10 && box.y * scale + y > 10 && (box.x + box.width) * scale + x < width - 10 && (box.y + Math.min(box.height, 120)) * scale + y < height - 10;
    if (!inside) this.centre(box.id);
  }

  // Pointer and keys

  listen() {
    const { svg } = this;
    const pointers = new Map();
    let moved = 0;
    let spread = 0;
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    svg.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, place(event));
      moved = 0;
      spread = 0;
    });
    svg.addEventListener("pointermove", (event) => {
      const last = pointers.get(event.pointerId);
      if (!last) return;
      const now = place(event);
      pointers.set(event.pointerId, now);
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()];
        const wide = Math.hypot(a.x - b.x, a.y - b.y);
        if (spread) this.zoom(wide / spread, { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
        spread = wide;
        moved += 10;
        return;
      }
      moved += Math.abs(now.x - last.x) + Math.abs(now.y - last.y);
      if (moved > 3 && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
      this.view.x += now.x - last.x;
      this.view.y += now.y - last.y;
      this.apply();
    });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) svg.addEventListener(name, (event) => pointers.delete(event.pointerId));
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), place(event));
    }, { passive: false });
    svg.addEventListener("click", (event) => {
      if (moved > 3) return;
      const id = event.target.closest("[data-id]")?.dataset.id;
      if (!id) return this.select(null);
      this.select(id);
      const item = this.tree.items.get(id);
      if (item.kind === "scope") this.toggle(id);
      else if (item.node.step >= 0) this.app.open(this, item);
    });
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const item = this.tree.items.get(this.selected);
      const actions = { "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), f: () => this.fit(), c: () => this.collapse() };
      if (event.key.startsWith("Arrow")) this.walk(event.key);
      else if ((event.key === "Enter" || event.key === " ") && item) {
        if (item.kind === "scope") this.toggle(item.id);
        else this.app.open(this, item);
      } else if (event.key in actions) actions[event.key]();
      else return;
      event.preventDefault();
    });
  }
}
