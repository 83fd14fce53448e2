// Config: a row for each key of the runs' configs, those that differ or all.
let settings = null;

async function showConfig() {
  settings = await get("config");
  drawConfig();
}

function drawConfig() {
  const same = choice("same") !== "", visible = shownRuns();
  const differs = (s) => new Set(visible.map((i) => s.values[i])).size > 1;
  const given = settings.settings.filter((s) => visible.some((i) => s.values[i] !== null));
  const rows = given.filter((s) => same || differs(s)), count = given.filter(differs).length;
  one("#part-config input").checked = same;
  one("#part-config output").textContent = `${count} of ${given.length} keys differ` + settings.problems.map((p) => `. ${p}`).join("");
  const head = make("tr", {}, make("th", { scope: "col" }, "key"), visible.map((i) => make("th", { scope: "col" }, swatch(i), runs[i].name)));
  const body = rows.map((s) => make("tr", { class: same && differs(s) ? "differs" : false }, make("th", { scope: "row" }, s.key),
    visible.map((i) => (s.values[i] === null ? make("td", { class: "faint" }, "not given") : make("td", { class: "text" }, s.values[i])))));
  one("#part-config .scroll").replaceChildren(make("table", { class: "settings" }, make("thead", {}, head), make("tbody", {}, body)));
}

function startConfig() {
  one("#part-config input").addEventListener("change", (e) => {
    choose("same", e.target.checked ? "1" : "");
    drawConfig();
  });
}
