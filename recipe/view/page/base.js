"use strict";
// The page of posttrain view. Texts of runs become texts of the document, never HTML.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);

// make is an element. Of attributes true is one without a value; false and null are left out, so are children.
function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== false && c !== null && c !== undefined));
  return e;
}

// filed are the answers that a page in a file has with it.
const filed = one("#filed") && JSON.parse(one("#filed").textContent);

const escaped = (value) => encodeURIComponent(value).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());

// get asks for an answer. A page in a file throws where it does not have it.
async function get(name, query = {}) {
  const words = Object.entries(query).map(([key, value]) => `${key}=${escaped(value)}`).join("&");
  const address = words ? `${name}?${words}` : name;
  if (filed) {
    if (!Object.hasOwn(filed, address)) throw new Error("this page is a file, which does not have all answers");
    return filed[address];
  }
  const reply = await fetch("api/" + address);
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

// figure writes a number in four digits.
function figure(v) {
  if (v === null || v === undefined) return "–";
  const size = Math.abs(v);
  if (size !== 0 && (size >= 1e5 || size < 1e-4)) return v.toExponential(3);
  return String(Number(v.toPrecision(4)));
}

// What the page shows. The address of the page has it, so that a reload or a link shows the same.
const parts = ["curves", "samples", "config", "cases"];
const shown = { part: "curves", query: new URLSearchParams() };
const choice = (name) => shown.query.get(name) ?? "";

function readAddress() {
  const [part, words] = location.hash.slice(1).split("?");
  shown.part = parts.includes(part) ? part : "curves";
  if (words !== undefined) shown.query = new URLSearchParams(words);
}

// choose notes a choice in the address; "" removes it. Not every browser lets a page from the disk replace it in place.
function choose(name, value) {
  if (value === "") shown.query.delete(name);
  else shown.query.set(name, value);
  writeAddress();
}

function writeAddress() {
  const words = shown.query.toString(), address = "#" + shown.part + (words ? "?" + words : "");
  if (location.hash === address) return;
  try {
    history.replaceState(null, "", address);
  } catch {
    location.replace(address);
  }
}

let runs = []; // of the last answer

// hidden are the runs that are not shown, by their numbers.
const hiddenRuns = () => new Set(choice("hide").split(",").filter((n) => n !== "").map(Number));
const shownRuns = () => runs.map((r, i) => i).filter((i) => !hiddenRuns().has(i));

// swatch is the colour of a run, solid or dashed.
const swatch = (run, dashed = false) => make("span", { class: `swatch run-${run % 8}${dashed ? " dashed" : ""}`, "aria-hidden": "true" });

// warn shows an error above the page; "" removes it.
function warn(text = "") {
  const place = one("p[role=alert]");
  if (place.textContent !== text) place.textContent = text;
  place.hidden = text === "";
}
