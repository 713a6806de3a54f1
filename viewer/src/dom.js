// Elements in one line: h("button", {class: "x", onclick}, "text"); s(...) for SVG.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function clear(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

let measuring;

/** The width of a text in pixels, in a font of the page. */
export function textWidth(text, font) {
  measuring ??= document.createElement("canvas").getContext("2d");
  if (measuring.font !== font) measuring.font = font;
  return measuring.measureText(text).width;
}

/** A text cut in its middle, where its ends tell most. */
export function shortened(text, most) {
  if (text.length <= most) return text;
  const front = Math.ceil((most - 1) * 0.45);
  return `${text.slice(0, front)}…${text.slice(text.length - (most - 1 - front))}`;
}
