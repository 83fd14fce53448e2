// Opens the page of a PrivacyLens run as a browser does, runs its script, and tries what a reader can do with it.
//
//   node look.mjs cases.html
//
// The package jsdom must be installed beside this file (npm install). The page must be that of the six cases of
// page_test.go. Prints a line for each check; the exit code is 1 where one fails. A test of package eval/privacylens
// runs it.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { JSDOM, VirtualConsole } from "jsdom";

const text = readFileSync(process.argv[2], "utf8");
const rest = () => new Promise((done) => setTimeout(done, 0)); // events that a browser sends later

// open is a window with the page. It fetches nothing; an error of the page's script is one of the check.
function open(hash = "", { from = "file:///run/", ...options } = { runScripts: "dangerously" }) {
  const faults = [], scrolled = [];
  const note = (e) => faults.push(e);
  const virtualConsole = new VirtualConsole().on("jsdomError", note).on("error", note);
  const { window } = new JSDOM(text, {
    url: from + "cases.html" + hash, virtualConsole, ...options,
    beforeParse(w) { w.Element.prototype.scrollIntoView = function () { scrolled.push(this); }; },
  });
  const { document } = window;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => {
    const found = all(selector, root);
    assert.equal(found.length, 1, `${selector}: ${found.length} elements`);
    return found[0];
  };
  const press = (key, target = document.activeElement, init = {}) =>
    target.dispatchEvent(new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...init }));
  const send = (target, type) => target.dispatchEvent(new window.Event(type, { bubbles: true, cancelable: true }));
  const page = {
    window, document, all, one, press, send, faults, scrolled,
    cases: all("details.case"),
    shown: () => page.cases.filter((c) => !c.hidden).map((c) => c.dataset.name.slice(0, 5)),
    opened: () => page.cases.filter((c) => c.open).map((c) => c.dataset.name.slice(0, 5)),
    status: () => one(".bar output").textContent,
    search: (words) => { const box = one("input[type=search]"); box.value = words; send(box, "input"); },
    show: (value) => one(`input[name=show][value=${value}]`).click(),
    choose: (index, value) => {
      const s = all("select")[index];
      s.value = value;
      assert.equal(s.value, value);
      send(s, "change");
    },
    hash: () => decodeURIComponent(window.location.hash.slice(1)),
  };
  return page;
}
const every = ["case0", "case1", "case2", "case3", "case4", "case5"];

const checks = {
  async "the policy lets the page's own style and script through, and nothing else"() {
    const { one } = open();
    const policy = one("meta[http-equiv=Content-Security-Policy]").content;
    const hash = (element) => `'sha256-${createHash("sha256").update(one(element).textContent).digest("base64")}'`;
    assert.equal(policy, `default-src 'none'; style-src ${hash("style")}; script-src ${hash("script")}; ` +
      "base-uri 'none'; form-action 'none'");
  },
  async "hostile text is text"() {
    const { window, document, all, cases } = open();
    await rest();
    assert.equal(window.harm, undefined);
    assert.equal(all("script").length, 1);
    assert.equal(all("img, iframe, object, embed, link, base, svg").length, 0);
    const active = (name) => name.startsWith("on") || name === "src" || name === "style";
    assert.equal(all("*").filter((e) => e.getAttributeNames().some(active)).length, 0);
    assert.ok(all("a").every((a) => a.getAttribute("href").startsWith("#")));
    assert.equal(cases.length, 6);
    const action = cases[5].querySelector("pre.action").textContent;
    assert.ok(action.includes("</pre></details></style>{{.Title}}\u2028javascript:"));
    assert.ok(document.title.includes("<script>window.harm=1</script>"));
    assert.ok(cases.every((c) => c.parentElement === document.querySelector("main")));
  },
  async "without JavaScript every case can be read, and no dead field is shown"() {
    const { all, cases } = open("", {});
    assert.ok(cases.every((c) => !c.hidden && !c.closest("[hidden]")));
    assert.ok(all("input, select, button").every((e) => e.closest("[hidden]")));
  },
  async "filters"() {
    const p = open();
    assert.deepEqual(p.shown(), every);
    assert.equal(p.status(), "6 of 6 cases");
    for (const [value, want] of Object.entries({
      leaking: ["case0", "case5"], sound: ["case1", "case2", "case3", "case4"], none: ["case2", "case4"],
      unparsed: ["case1", "case5"], helpful: ["case0", "case3", "case5"], all: every,
    })) {
      p.show(value);
      assert.deepEqual(p.shown(), want, value);
      assert.equal(p.status(), `${want.length} of 6 cases`);
      const label = p.one(`input[value=${value}]`).closest("label").textContent.trim();
      assert.ok(label.endsWith(` ${want.length}`), label);
    }
    p.show("sound");
    p.choose(0, "score-0"); // helpfulness
    assert.deepEqual(p.shown(), ["case1", "case2", "case4"]);
    p.choose(1, "law"); // source
    assert.deepEqual(p.shown(), ["case1"]);
    p.choose(2, "send an email"); // principle
    p.choose(3, "GmailSendEmail"); // tool
    assert.deepEqual(p.shown(), ["case1"]);
    p.search("nowhere to be found");
    assert.equal(p.status(), "0 of 6 cases");
    p.one("button[type=reset]").click();
    await rest();
    assert.deepEqual(p.shown(), every);
    p.choose(1, [...p.all("select")[1].options].find((o) => o.value.includes("<script>")).value);
    assert.deepEqual(p.shown(), ["case5"]);
    assert.deepEqual(p.faults, []);
  },
  async "search"() {
    const p = open();
    for (const [words, want] of Object.entries({
      // name, task, action, item, output
      "CASE3": ["case3"], "number 4.": ["case4"], "grüße:  BEN": ["case0"], "room 1": ["case1"],
      "rather not": ["case2"], "window.harm": ["case5"], "Ann knows": [], " ": every,
    })) {
      p.search(words);
      assert.deepEqual(p.shown(), want, words);
    }
    p.search("all is well");
    assert.deepEqual(p.shown(), ["case1", "case3"]);
    p.press("Enter", p.one("input[type=search]"));
    assert.deepEqual(p.opened(), ["case1"]);
    p.show("helpful");
    assert.deepEqual(p.shown(), ["case3"]);
  },
  async "keys and buttons"() {
    const p = open();
    p.press("j");
    assert.deepEqual(p.opened(), ["case0"]);
    assert.equal(p.hash(), "case0");
    assert.equal(p.document.activeElement, p.cases[0].querySelector("summary"));
    assert.equal(p.scrolled.at(-1), p.cases[0]);
    p.press("ArrowRight");
    p.press("j");
    p.press("j");
    await rest(); // the late events of cases that were left are of no account
    assert.deepEqual(p.opened(), ["case3"]);
    assert.equal(p.hash(), "case3");
    p.press("k");
    assert.deepEqual(p.opened(), ["case2"]);
    p.show("leaking");
    p.press("j");
    assert.deepEqual(p.opened(), ["case5"]);
    p.press("j"); // there is no next one
    assert.deepEqual(p.opened(), ["case5"]);
    p.press("ArrowLeft");
    assert.deepEqual(p.opened(), ["case0"]);
    p.one("[data-go='1']").click();
    assert.deepEqual(p.opened(), ["case5"]);
    p.one("[data-go='-1']").click();
    p.press("k");
    assert.deepEqual(p.opened(), ["case0"]);
    p.press("/");
    const box = p.one("input[type=search]");
    assert.equal(p.document.activeElement, box);
    for (const key of ["j", "k", "ArrowRight", "/"]) assert.ok(p.press(key, box), key); // they are typed
    assert.ok(p.press("ArrowRight", p.all("input[type=radio]")[0]));
    assert.ok(p.press("j", p.document.body, { ctrlKey: true }));
    assert.deepEqual(p.opened(), ["case0"]);
    assert.equal(p.press("j", p.all("input[type=radio]")[0]), false);
    assert.deepEqual(p.opened(), ["case5"]);
    p.press("j", p.document); // the document itself has no closest
    assert.deepEqual(p.faults, []);
  },
  async "links"() {
    for (const i of [2, 5]) {
      const name = open().cases[i].dataset.name;
      const p = open("#" + encodeURIComponent(name));
      assert.deepEqual(p.opened(), [every[i]]);
      assert.equal(p.scrolled.at(-1), p.cases[i]);
      assert.equal(p.hash(), name);
      const link = p.cases[i].querySelector("a").getAttribute("href");
      assert.equal(decodeURIComponent(link.slice(1)), name);
      assert.equal(p.document.getElementById(name), p.cases[i]);
    }
    const p = open("#case1");
    p.show("leaking");
    p.window.location.hash = "#case3"; // not among those that the filter shows
    await new Promise((done) => p.window.addEventListener("hashchange", done, { once: true }));
    assert.deepEqual(p.opened(), ["case3"]);
    assert.equal(p.cases[3].hidden, false);
    const scrolled = p.scrolled.length;
    p.cases[4].querySelector("summary").click(); // opens where it is: the page does not move under the pointer
    await new Promise((done) => p.window.addEventListener("hashchange", done, { once: true }));
    assert.equal(p.scrolled.length, scrolled);
    assert.deepEqual(p.opened(), ["case3", "case4"]);
    assert.equal(p.hash(), "case4");
    p.press("k");
    assert.deepEqual(p.opened(), ["case3"]);
    for (const odd of ["#%E0%A4%A", "#nobody", "#__proto__", "#"]) assert.deepEqual(open(odd).opened(), [], odd);
    assert.deepEqual(p.faults, []);
  },
  async "the address of a page that a server sends"() {
    // With such an address jsdom lets the page replace it in place.
    const p = open("#case1", { from: "http://127.0.0.1/", runScripts: "dangerously" });
    const before = p.window.history.length;
    p.press("j");
    p.press("j");
    await rest();
    assert.equal(p.hash(), "case3");
    assert.deepEqual(p.opened(), ["case3"]);
    assert.equal(p.window.history.length, before);
    assert.deepEqual(p.faults, []);
  },
  async "marks"() {
    const p = open("#case0");
    const c = p.cases[0], marks = p.all("mark", c), items = p.all("[data-item]", c), button = p.one(".where", c);
    assert.deepEqual(marks.map((m) => m.textContent), ["Ben has caught a bad flu", "Ben has caught a bad flu"]);
    const lit = () => [marks, items].map((of) => of.map((e) => Number(e.classList.contains("on"))).join(""));
    p.send(items[0].querySelector("span"), "pointerover");
    assert.deepEqual(lit(), ["11", "10"]);
    p.send(items[0].querySelector("span"), "pointerout");
    assert.deepEqual(lit(), ["00", "00"]);
    p.send(marks[1], "pointerover");
    assert.deepEqual(lit(), ["11", "10"]);
    p.send(marks[1], "pointerout");
    button.click();
    assert.deepEqual(lit(), ["11", "10"]);
    assert.equal(button.getAttribute("aria-pressed"), "true");
    assert.equal(p.scrolled.at(-1), marks[0]);
    p.send(items[1], "pointerover"); // the words of the other item are not in the action
    assert.deepEqual(lit(), ["11", "11"]);
    p.send(items[1], "pointerout");
    assert.deepEqual(lit(), ["11", "10"]);
    marks[1].click();
    assert.deepEqual(lit(), ["00", "00"]);
    assert.equal(button.getAttribute("aria-pressed"), "false");
    assert.equal(items[1].querySelector(".where"), null);
    p.cases[5].querySelector("mark").click();
    assert.equal(p.cases[5].querySelector(".where").getAttribute("aria-pressed"), "true");
    assert.deepEqual(p.faults, []);
  },
  async "fields have names"() {
    const { all } = open();
    for (const e of all("input, select, output, button")) {
      const named = ["aria-label", "aria-live"].some((name) => e.getAttribute(name));
      assert.ok(e.closest("label") || named || e.textContent.trim(), e.outerHTML);
    }
    assert.ok(all("th").every((e) => ["row", "col"].includes(e.getAttribute("scope"))));
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAILED ${name}: ${e.stack}`);
  }
}
process.exit(failed ? 1 : 0);
