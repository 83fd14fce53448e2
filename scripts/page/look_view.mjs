// Opens a page that `posttrain view --out` has written as a browser does, runs its scripts, and tries what a reader can
// do with it.
//
//   node look_view.mjs page.html
//
// The package jsdom must be installed beside this file (npm install). The page must be that of the runs of
// recipe/view/texts_test.go, whose test runs this. Prints a line for each check; the exit code is 1 where one fails.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { JSDOM, VirtualConsole } from "jsdom";

const text = readFileSync(process.argv[2], "utf8");
const rest = () => new Promise((done) => setTimeout(done, 30)); // what the page waits for

// paper is a canvas's context that takes everything: jsdom draws nothing.
const paper = new Proxy({}, { get: (of, name) => of[name] ?? (name === "measureText" ? () => ({ width: 10 }) : () => {}), set: () => true });

// open is a window with the page. An error of the page's scripts is one of the check.
async function open(hash = "") {
  const faults = [];
  const virtualConsole = new VirtualConsole().on("jsdomError", (e) => faults.push(e)).on("error", (e) => faults.push(e));
  const { window } = new JSDOM(text, {
    url: "http://127.0.0.1/page.html" + hash, virtualConsole, runScripts: "dangerously", pretendToBeVisual: true,
    beforeParse(w) {
      w.HTMLCanvasElement.prototype.getContext = () => paper;
      w.Path2D = class { moveTo() {} lineTo() {} rect() {} arc() {} closePath() {} addPath() {} };
      w.ResizeObserver = class { observe() {} disconnect() {} };
      w.matchMedia = () => ({ matches: false, addEventListener() {}, addListener() {} });
    },
  });
  const { document } = window;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => {
    const found = all(selector, root);
    assert.equal(found.length, 1, `${selector}: ${found.length} elements`);
    return found[0];
  };
  const send = (target, type) => target.dispatchEvent(new window.Event(type, { bubbles: true, cancelable: true }));
  await rest();
  const texts = (e) => (e.nodeType === 3 ? e.data : [...e.childNodes].map(texts).join(" "));
  const words = (e) => texts(e).replace(/\s+/g, " ").trim(); // with spaces between cells
  return {
    window, document, all, one, faults, words,
    async go(part) { window.location.hash = "#" + part; await rest(); },
    async set(field, value) { if (typeof value === "boolean") field.checked = value; else field.value = value; send(field, "change"); await rest(); },
    async type(field, value) { field.value = value; send(field, "input"); await rest(); },
    async click(e) { e.click(); await rest(); },
    async openDetails(d) { d.open = true; send(d, "toggle"); await rest(); },
    charts: () => all(".chart h2").map((e) => e.textContent),
    rows: (metric) => all("tbody tr", all(".chart").find((c) => one("h2", c).textContent === metric)).map(words),
    notes: (metric) => words(one(".notes", all(".chart").find((c) => one("h2", c).textContent === metric))),
    hash: () => decodeURIComponent(window.location.hash),
    warned: () => all("p[role=alert]:not([hidden])").map(words),
  };
}

const checks = {
  async "the policy lets the page's own style and scripts through, and nothing else"() {
    const { one, all } = await open();
    const hash = (e) => `'sha256-${createHash("sha256").update(e.textContent).digest("base64")}'`;
    const scripts = all("script:not([type])").map(hash).join(" ");
    assert.equal(one("meta[http-equiv=Content-Security-Policy]").content, `default-src 'none'; style-src ${hash(one("style"))}; ` +
      `script-src ${scripts}; connect-src 'self'; base-uri 'none'; form-action 'none'`);
  },
  async "hostile text is text in every part"() {
    const p = await open();
    for (const part of ["curves", "samples", "config", "cases"]) {
      await p.go(part);
      for (const d of p.all("details.case")) await p.openDetails(d);
      assert.deepEqual(p.warned(), [], part);
      assert.equal(p.window.harm, undefined, part);
      assert.equal(p.all("script").length, 3, part);
      assert.equal(p.all("img, iframe, object, embed, link, base, svg").length, 0, part);
      assert.equal(p.all("*").filter((e) => e.getAttributeNames().some((name) => name.startsWith("on"))).length, 0, part);
    }
    assert.ok(p.words(p.one("#part-samples .columns")).includes('</script><script>window.harm=1</script><img src=x onerror="window.harm=1">'));
    assert.ok(p.words(p.one("#part-cases .list")).includes("<script>window.harm=1</script>"));
    assert.ok(p.words(p.one("fieldset.runs")).includes('again <img src=x onerror="window.harm=1">'));
    assert.deepEqual(p.faults, []);
  },
  async "curves of several runs"() {
    const p = await open();
    assert.deepEqual(p.charts(), ["loss", "reward"]);
    assert.deepEqual(p.rows("loss"), ["ours – 0.6 0.6 at 2 0.6 at 2", "trl – 0.5 0.5 at 2 0.69 at 1", "ours, held-out – 0.5 0.5 at 4 0.7 at 0"]);
    assert.equal(p.notes("loss"), "ours: not finite at step 4.");
    await p.set(p.one("select[name=x]"), "tokens");
    assert.deepEqual(p.rows("loss").length, 2);
    assert.ok(p.notes("loss").endsWith("Without tokens: trl."), p.notes("loss"));
    assert.equal(p.hash(), "#curves?x=tokens");
    for (const x of ["time", "epoch", "step"]) await p.set(p.one("select[name=x]"), x);
    for (const s of ["0", "1", "2", ""]) await p.set(p.one("select[name=smooth]"), s);
    await p.set(p.one("input[name=log]"), true);
    assert.equal(p.hash(), "#curves?log=1");
    assert.ok(p.all("select[name=x] option").find((o) => o.value === "samples").disabled);
    assert.match(p.one(".chart[aria-label=loss] .plot").getAttribute("aria-label"), /^loss over step\. ours: last 0\.6\. trl: last 0\.5\./);
    assert.equal(p.all(".u-wrap").length, 2);
    assert.deepEqual(p.faults, []);
  },
  async "metrics are chosen, searched and removed"() {
    const p = await open();
    await p.type(p.one(".metrics input[type=search]"), "TOK");
    assert.deepEqual(p.all(".choices label:not([hidden])").map(p.words), ["num_tokens"]);
    await p.set(p.one(".choices input[value=num_tokens]"), true);
    assert.deepEqual(p.charts(), ["loss", "reward", "num_tokens"]);
    await p.click(p.one(".chart[aria-label=loss] .close"));
    assert.deepEqual(p.charts(), ["reward", "num_tokens"]);
    assert.equal(p.hash(), "#curves?m=reward,num_tokens");
    for (const base of ["reward", "num_tokens"]) await p.click(p.one(`.chart[aria-label=${base}] .close`));
    assert.deepEqual(p.charts(), []);
    assert.equal(p.words(p.one(".charts")), "Choose metrics above.");
    assert.deepEqual(p.faults, []);
  },
  async "a run that is switched off is shown nowhere"() {
    const p = await open();
    await p.set(p.one("fieldset.runs input[value='0']"), false);
    assert.deepEqual(p.rows("loss"), ["trl – 0.5 0.5 at 2 0.69 at 1"]);
    assert.equal(p.hash(), "#curves?hide=0");
    const again = await open("#config?hide=0,1,2,3");
    assert.deepEqual(again.all(".settings thead th").map(again.words), ["key", "a", "b"]);
    assert.equal(again.one("fieldset.runs input[value='0']").checked, false);
  },
  async "samples side by side, with keywords marked"() {
    const p = await open("#samples");
    const heads = () => p.all("#part-samples .column").map((c) => c.getAttribute("aria-label").replace(/<.*>/, "X"));
    assert.deepEqual(heads(), ["cirl · step 20", "again X · step 20"]);
    assert.equal(p.words(p.one("#part-samples output")), "1 of 2");
    const marks = p.all("#part-samples .column:first-child mark").map((m) => `${m.className} ${m.textContent}`);
    assert.deepEqual(marks, ["thought the flu", "required JOSÉ", "restricted the flu"]);
    const badges = p.all("#part-samples .column:first-child .words li").map(p.words);
    assert.deepEqual(badges, ["1 José there", "2 the flu there", "3 key kept back", "4 the flu there"]);
    p.one("#part-samples .shared details").open = true;
    await p.click(p.one("[data-step='1']"));
    assert.equal(p.one("select[name=item]").value, "a, answer 2");
    assert.ok(p.one("#part-samples .shared details").open);
    await p.set(p.one("input[name=differ]"), true);
    assert.equal(p.words(p.one("#part-samples output")), "no items");
    await p.set(p.one("input[name=differ]"), false);
    await p.click(p.one(".more"));
    assert.equal(heads().length, 3);
    await p.set(p.one("[data-column='2']"), "2:step 0");
    assert.equal(heads()[2], "cirl · step 0");
    await p.set(p.one("select[name=item]"), "b");
    assert.deepEqual(p.all("#part-samples .column").map((c) => p.words(c).includes("This set has no answer to the item.")), [true, true, false]);
    await p.click(p.one("[data-close='0']"));
    assert.deepEqual(heads(), ["again X · step 20", "cirl · step 0"]);
    assert.deepEqual(p.faults, []);
  },
  async "one run shows its first and last step"() {
    const p = await open("#samples?hide=0,1,3,4,5");
    assert.deepEqual(p.all("#part-samples .column").map((c) => c.getAttribute("aria-label")), ["cirl · step 0", "cirl · step 20"]);
    await p.set(p.one("input[name=differ]"), true);
    assert.equal(p.words(p.one("#part-samples output")), "1 of 1");
  },
  async "configs that differ, or all keys"() {
    const p = await open("#config?hide=1,3,4,5");
    const keys = () => p.all(".settings tbody tr").map(p.words);
    assert.deepEqual(keys(), ["command mappo ci-rl", "loss.beta 0.1 not given"]);
    await p.set(p.one("input[name=same]"), true);
    assert.deepEqual(keys(), ["command mappo ci-rl", "loss.beta 0.1 not given", "seed 1 1"]);
    assert.equal(p.all("tr.differs").length, 2);
  },
  async "PrivacyLens cases"() {
    const p = await open("#cases");
    const names = () => p.all("details.case:not([hidden])").map((d) => d.dataset.name);
    assert.deepEqual(names(), ["case0", "case1"]);
    assert.ok(p.words(p.one(".rates")).includes("a 2 50.0% (1/2, "), p.words(p.one(".rates")));
    await p.set(p.one("#part-cases select"), "differ");
    assert.deepEqual(names(), ["case0"]);
    await p.set(p.one("#part-cases select"), "none");
    assert.deepEqual(names(), ["case1"]);
    await p.set(p.one("#part-cases select"), "");
    await p.type(p.one("#part-cases input[type=search]"), "CASE0");
    assert.deepEqual(names(), ["case0"]);
    await p.openDetails(p.one("details[data-name=case0]"));
    const body = p.one("details[data-name=case0] .body");
    assert.deepEqual(p.all(".column header", body).map(p.words), ["a", "b"]);
    assert.equal(p.all("mark", body).length, 2);
    assert.deepEqual(p.all(".items .badge", body).map(p.words), ["leaks", "no leak"]);
    await p.openDetails(p.one("details[data-name=case1]"));
    assert.ok(p.words(p.one("details[data-name=case1] .body")).includes("The output has no action"));
    assert.deepEqual(p.faults, []);
  },
  async "fields have names, and the open part is said"() {
    const p = await open();
    for (const part of ["curves", "samples", "config", "cases"]) {
      await p.go(part);
      assert.deepEqual(p.all("nav [aria-current]").map((a) => a.getAttribute("href")), ["#" + part]);
      assert.deepEqual(p.all("main > section:not([hidden])").map((s) => s.id), ["part-" + part]);
    }
    for (const e of p.all("input, select, button")) assert.ok(e.closest("label") || e.getAttribute("aria-label") || e.textContent.trim(), e.outerHTML);
    assert.ok(p.all("th").every((e) => ["row", "col"].includes(e.getAttribute("scope"))));
    for (const odd of ["#nobody", "#curves?m=", "#samples?item=%00&cols=9:x", "#cases?cases=__proto__", "#curves?x=none&smooth=7&hide=x"]) {
      const q = await open(odd);
      assert.deepEqual(q.faults, [], odd);
      assert.deepEqual(q.warned(), [], odd);
    }
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
