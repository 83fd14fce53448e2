// The beginning: the list of runs, the parts of the page, and asking again while runs are under way.
const every = 2000; // milliseconds
const show = { curves: showCurves, samples: showSamples, config: showConfig, cases: showCases };

// drawAgain draws the open part with what is there already.
async function drawAgain(draw) {
  try {
    await draw();
  } catch (e) {
    warn(e.message);
  }
}

// refresh shows the open part anew.
async function refresh() {
  for (const part of parts) one("#part-" + part).hidden = part !== shown.part;
  for (const link of all("nav a")) {
    if (link.getAttribute("href") === "#" + shown.part) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  one("nav a[href='#samples']").hidden = !runs.some((r) => r.sets) && shown.part !== "samples";
  one("nav a[href='#cases']").hidden = !runs.some((r) => r.cases) && shown.part !== "cases";
  fillCurves();
  try {
    await show[shown.part]();
    warn(runs.map((r) => r.problem).filter(Boolean).join(" "));
  } catch (e) {
    warn(e.message);
  }
}

// ago says how long ago a run has written, in one unit.
function ago(time) {
  const seconds = Math.max(0, Math.round((Date.now() - time) / 1000));
  for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${name} ago`;
  return `${seconds} s ago`;
}

function listRuns() {
  const place = one("fieldset.runs"), hidden = hiddenRuns();
  if (all("label", place).length !== runs.length) {
    place.append(...runs.map((r, i) => make("label", { title: r.path }, make("input", { type: "checkbox", value: String(i) }), swatch(i),
      make("span", { class: "name" }, r.name), make("span", { class: "faint state" }))));
  }
  all("label", place).forEach((label, i) => {
    const r = runs[i], words = [r.kind === "posttrain" ? r.command : r.kind, r.records && `step ${r.step}`,
      r.finished ? r.kind === "posttrain" && "finished" : !filed && r.changed && ago(r.changed)];
    one("input", label).checked = !hidden.has(i);
    const text = words.filter(Boolean).join(" · ");
    if (one(".state", label).textContent !== text) one(".state", label).textContent = text;
  });
}

// ask reads the list of runs, and the open part again if one of them has changed.
let stamp = null;
async function ask() {
  try {
    ({ runs } = await get("runs"));
    one("output.live").textContent = filed ? "a file" : runs.every((r) => r.finished) ? "" : "live";
    listRuns();
    const now = runs.map((r) => r.stamp + r.finished + (r.problem ?? "")).join("\n");
    if (now !== stamp) {
      stamp = now;
      await refresh();
    }
  } catch (e) {
    warn("posttrain view does not answer any more: start it again, then reload this page.");
    stamp = null;
  }
  if (!filed) setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", ask, { once: true }) : ask()), every);
}

function follow() {
  readAddress();
  writeAddress(); // the links of the parts leave the choices out
  refresh();
}

one("fieldset.runs").addEventListener("change", () => {
  choose("hide", all("fieldset.runs input").filter((e) => !e.checked).map((e) => e.value).join(","));
  refresh();
});
window.addEventListener("hashchange", follow);
startCurves();
startSamples();
startConfig();
startCases();
readAddress();
ask();
