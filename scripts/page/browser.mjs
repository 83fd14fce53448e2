// Opens posttrain view in a real browser, without a window, and tries it: every part, in light and dark, wide and narrow;
// a run that goes on. An error in the console, or a request to another place, is a failure.
//
//   node browser.mjs POSTTRAIN SHOTS RUN...
//
// POSTTRAIN is the program, RUN are run folders; the pictures go into the folder SHOTS, to be looked at. The package
// playwright-core must be installed beside this file (npm install), and Chromium be on this machine (Debian's package
// chromium), at CHROMIUM or /usr/bin/chromium.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [program, shots, ...runs] = process.argv.slice(2);
assert.ok(runs.length, "usage: node browser.mjs POSTTRAIN SHOTS RUN...");
mkdirSync(shots, { recursive: true });
const faults = [], ends = [];

// serve starts posttrain view and gives the address that it prints.
function serve(...paths) {
  const child = spawn(program, ["view", ...paths], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((done) => child.on("exit", done));
  ends.push(async () => { child.kill("SIGINT"); return ended; });
  return new Promise((done, fail) => {
    child.on("error", fail);
    ended.then((code) => fail(new Error(`posttrain view ended with ${code}`)));
    child.stdout.on("data", (text) => { const found = String(text).match(/http:\S+/); if (found) done(found[0]); });
  });
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
async function open(url, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  page.on("console", (m) => { if (["error", "warning"].includes(m.type())) faults.push(`console: ${m.text()}`); });
  page.on("pageerror", (e) => faults.push(`page: ${e.message}`));
  page.on("request", (r) => { if (!r.url().startsWith(url.split("#")[0])) faults.push(`request to ${r.url()}`); });
  await page.goto(url);
  await page.waitForSelector("fieldset.runs label");
  await page.waitForTimeout(400);
  return page;
}
const picture = (page, name) => page.screenshot({ path: join(shots, name + ".png") });

// painted counts the colours of a chart's pixels: a chart without lines has few.
const painted = (page) => page.evaluate(() => {
  const c = document.querySelector(".plot canvas"), data = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
  return new Set(data).size;
});

const checks = {
  async "every part, in light and dark"() {
    const url = await serve(...runs);
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(url, { colorScheme });
      for (const link of await page.locator("nav a:visible").all()) {
        const part = (await link.getAttribute("href")).slice(1);
        await link.click();
        await page.waitForTimeout(600);
        assert.equal(await page.locator("main > section:visible").count(), 1, part);
        assert.equal(await page.locator("p[role=alert]:visible").count(), 0, part);
        if (part === "cases") await page.locator("details.case summary").first().click();
        await page.waitForTimeout(200);
        await picture(page, `${part}-${colorScheme}`);
      }
      await page.close();
    }
  },
  async "charts are drawn, zoom, and keep their places"() {
    const page = await open(await serve(...runs));
    assert.ok(await painted(page) > 20, "the chart is empty");
    const plot = page.locator(".plot").first(), box = await plot.boundingBox();
    const cell = page.locator(".chart td").first();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 100);
    await page.waitForTimeout(100);
    assert.notEqual(await cell.textContent(), "–");
    const before = await page.locator(".chart").nth(1).boundingBox();
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.8, box.y + 100, { steps: 4 });
    await page.mouse.up();
    await picture(page, "zoomed");
    await page.locator("select[name=smooth]").selectOption("1");
    await page.locator("input[name=log]").check();
    await page.waitForTimeout(200);
    assert.deepEqual(await page.locator(".chart").nth(1).boundingBox(), before, "a chart has moved");
    await picture(page, "smooth-log");
    await page.close();
  },
  async "narrow screens are not wider than they are"() {
    const url = await serve(...runs);
    for (const part of ["curves", "samples", "config", "cases"]) {
      const page = await open(`${url}#${part}`, { viewport: { width: 390, height: 800 } });
      await page.waitForTimeout(500);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), part);
      await picture(page, `narrow-${part}`);
      await page.close();
    }
  },
  async "keys alone reach everything"() {
    const page = await open(await serve(...runs));
    for (let i = 0; i < 40 && !(await page.evaluate(() => document.activeElement.matches("select[name=smooth]"))); i++) await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowDown");
    await page.waitForTimeout(200);
    assert.match(page.url(), /smooth=0/);
    await page.close();
  },
  async "a run that goes on grows while one looks"() {
    const run = mkdtempSync(join(tmpdir(), "view-"));
    try {
      const line = (step) => appendFileSync(join(run, "metrics.jsonl"), JSON.stringify({ step, epoch: 0, loss: 1 / step }) + "\n");
      writeFileSync(join(run, "config.yaml"), "command: mappo\n");
      const page = await open(await serve(run));
      assert.equal(await page.locator(".charts").textContent(), "The runs have no metrics yet.");
      for (let step = 1; step <= 5; step++) line(step);
      await page.waitForFunction(() => document.querySelector(".chart td:nth-child(3)")?.textContent === "0.2");
      const card = await page.locator(".chart").boundingBox();
      for (let step = 6; step <= 50; step++) line(step);
      await page.waitForFunction(() => document.querySelector(".chart td:nth-child(3)").textContent === "0.02");
      assert.deepEqual(await page.locator(".chart").boundingBox(), card, "the chart has moved");
      assert.match(await page.locator(".state").textContent(), /step 50/);
      assert.equal(await page.locator("output.live").textContent(), "live");
      await page.close();
    } finally {
      rmSync(run, { recursive: true });
    }
  },
  async "Ctrl-C ends the servers with code 0"() {
    for (const end of ends) assert.equal(await end(), 0);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    assert.deepEqual(faults.splice(0), []);
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAILED ${name}: ${e.stack}`);
  }
}
await browser.close();
process.exit(failed ? 1 : 0);
