// Makes and changes elements. Text reaches the page as text nodes only: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";
const FORBIDDEN = /^(on|style$|srcdoc$|innerhtml$|outerhtml$)/i;

/** Make an element; `on` holds listeners, `class` and other attributes are set as such, children become text or nodes. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an element of SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (FORBIDDEN.test(name)) {
      throw new Error(`attribute ${name} is not set from here`);
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, String(value));
    }
  }
  append(node, children);
  return node;
}

/** Append children: nodes as they are, arrays flattened, null and false left out, the rest as text. */
export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Replace what an element holds. */
export function put(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** Set a text, and touch the page only if it differs. */
export function setText(node, value) {
  const text = String(value);
  if (node.textContent !== text) node.textContent = text;
}

/** Set or remove an attribute, and touch the page only if it differs. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/**
 * Show items as children of an element, one each, and keep the elements of items that were there before: focus,
 * selection and scroll position stay.
 */
export class List {
  constructor(parent, keyOf, make, update) {
    Object.assign(this, { parent, keyOf, make, update });
    this.nodes = new Map();
  }

  show(items) {
    const left = new Map(this.nodes);
    let before = this.parent.firstElementChild;
    this.nodes = new Map();
    for (const item of items) {
      const key = this.keyOf(item);
      if (this.nodes.has(key)) continue;
      const node = left.get(key) ?? this.make(item);
      left.delete(key);
      this.update(node, item);
      if (node === before) before = before.nextElementSibling;
      else this.parent.insertBefore(node, before);
      this.nodes.set(key, node);
    }
    for (const node of left.values()) node.remove();
  }
}

let lastId = 0;

/** Return an id that no other element has. */
export function newId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}
