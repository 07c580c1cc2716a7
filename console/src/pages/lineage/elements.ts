// Elements of the drawing. Whatever text they hold is inserted as text, never as markup.

export type Child = Node | string | null | undefined | false;

const SVG = "http://www.w3.org/2000/svg";

/** An element of HTML. Attributes that are functions are listeners; those that are true stand without a value. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of SVG, the same way. */
export function s<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, unknown> = {},
  ...children: Child[]
): SVGElementTagNameMap[Tag] {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** The element of the page with this id. */
export function byId<Kind extends Element>(id: string, kind: new () => Kind): Kind {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`The page has no ${kind.name} #${id}`);
  return element;
}

function fill<Filled extends Element>(element: Filled, attributes: Record<string, unknown>, children: Child[]): Filled {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
