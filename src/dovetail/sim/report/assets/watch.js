"use strict";
// What goes wrong is written on the root element, where a test or a curious reader finds it.
const troubles = [];
function trouble(text) {
  troubles.push(String(text));
  document.documentElement.dataset.errors = JSON.stringify(troubles);
}
addEventListener("error", (event) => trouble(event.message));
addEventListener("unhandledrejection", (event) => trouble(event.reason));
document.addEventListener("securitypolicyviolation", (event) => trouble(`${event.violatedDirective}: ${event.blockedURI}`));

const SVG = "http://www.w3.org/2000/svg";
/** An element with attributes and children; text is always text, never markup. */
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "g", "text", "circle", "rect"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}
