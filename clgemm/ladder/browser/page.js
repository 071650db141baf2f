// The page: stairs, the step, and the buttons. `DATA` is what the ladder measured and what its files say.
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const rungOf = number => DATA.rungs.find(rung => rung.number === number);
const figure = gflops => gflops >= 100 ? Math.round(gflops).toLocaleString("en") : Number(gflops.toPrecision(3)).toString();
const HEADROOM = 2.2;  // a faster library is named only: its line would flatten the bars
const state = { climb: 0, number: 1, values: {}, item: 0, frame: 0, timer: null };
const now = { rung: null, geometry: null, frames: [] };  // what the picture shows

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function showDevices() {
  $("device").replaceChildren(...DATA.climbs.map((climb, index) =>
    element("option", `${climb.name}, n = ${climb.n}`, { value: index })));
  $("device").value = state.climb;
}

function showStairs() {
  const climb = DATA.climbs[state.climb];
  $("device-note").textContent = climb.note;
  const speeds = Object.values(climb.rungs).map(rung => rung.gflops), fastest = Math.max(...speeds, 1e-9);
  const drawn = climb.peers.filter(peer => peer.gflops < HEADROOM * fastest);
  const top = Math.max(fastest, ...drawn.map(peer => peer.gflops));
  const stairs = DATA.rungs.map(rung => {
    const found = climb.rungs[rung.number];
    const before = rung.dtype === rungOf(rung.before)?.dtype && climb.rungs[rung.before];
    const gain = found && before ? `, ${(found.gflops / before.gflops).toFixed(2)} times step ${rung.before}` : "";
    const stair = element("button", undefined, { type: "button", class: "stair", "data-rung": rung.number,
      "aria-pressed": rung.number === state.number,
      "aria-label": `Step ${rung.number}, ${rung.title}: ${found ? `${figure(found.gflops)} GFLOP/s${gain}` : "not measured"}` });
    stair.style.setProperty("--share", found ? found.gflops / top : 0);
    const shaft = element("span", undefined, { class: "shaft" });
    shaft.append(element("span", undefined, { class: "step-bar" }),
      element("span", found ? figure(found.gflops) : "-", { class: "figure" }));
    stair.append(element("span", `${rung.number} ${rung.title}`, { class: "name" }), shaft);
    stair.addEventListener("click", () => choose(rung.number));
    return stair;
  });
  const peers = drawn.map(peer => {
    const line = element("div", undefined, { class: "peer" });
    line.style.setProperty("--share", peer.gflops / top);
    line.append(element("span", `${peer.name} ${figure(peer.gflops)}`));
    return line;
  });
  $("stairs").replaceChildren(...stairs, ...peers);
  const names = climb.peers.map(peer => `${peer.name} ${figure(peer.gflops)}`).join(", ");
  $("beyond").textContent = names && `In GFLOP/s, for comparison: ${names}. Dashed lines: those that fit. They multiply float32.`;
}

function showWords(rung) {
  $("step-title").textContent = `Step ${rung.number}: ${rung.title}`;
  const parts = [];
  for (const [name, blocks] of rung.sections) {
    if (name === "Limits") continue;
    blocks.forEach(([text, isPicture], index) => {
      if (isPicture) parts.push(element("pre", text, { tabindex: 0, "aria-label": "drawing" }));
      else {
        const paragraph = element("p");
        if (!index) paragraph.append(element("strong", `${name}: `));
        paragraph.append(text);
        parts.push(paragraph);
      }
    });
  }
  parts.push(element("pre", rung.layout, { tabindex: 0, "aria-label": "layout of the matrices and tiles" }));
  $("words").replaceChildren(...parts);
}

function showFigures(rung) {
  const climb = DATA.climbs[state.climb], found = climb.rungs[rung.number];
  const rows = [];
  const row = (name, value) => rows.push([name, value]);
  const size = bytes => bytes >= 1e9 ? `${(bytes / 1e9).toPrecision(3)} GB` : bytes >= 1e6 ? `${(bytes / 1e6).toPrecision(3)} MB` : `${bytes} bytes`;
  if (found) {
    row(climb.name, `${figure(found.gflops)} GFLOP/s`);
    if (found.correct !== undefined) row("Check of the result", found.correct ? "passed" : "FAILED");
    const cublas = climb.peers.find(peer => peer.name === "cuBLAS");
    if (cublas && rung.dtype === "float32") row("Fraction of cuBLAS", (found.gflops / cublas.gflops).toFixed(2));
  } else row(climb.name, climb.refused[rung.number] ?? "not measured");
  const { counts, parameters } = found?.counts ? found : rung.counted;
  row("Counted for n", found?.counts ? climb.n : rung.counted.n);
  row("Parameters", parameters);
  row("Asked of global memory", size(counts.read_bytes + counts.written_bytes));
  row("Asked of local memory", size(counts.local_read_bytes + counts.local_written_bytes));
  row("Flops per byte, global", counts.flops_per_byte.toPrecision(3));
  row("Flops per byte, local", counts.flops_per_local_byte?.toPrecision(3) ?? "no local memory");
  row("Other kernels, global", size(counts.support_bytes));
  row("Work-groups", `${counts.work_groups.toLocaleString("en")} of ${counts.work_items} work-items`);
  row("Local memory per work-group", `${counts.local_memory_bytes.toLocaleString("en")} bytes`);
  if (rung.kepler) row("Tesla K40m, the tutorial", `${figure(rung.kepler)} GFLOP/s`);
  $("figures").tBodies[0].replaceChildren(...rows.map(([name, value]) => {
    const line = element("tr");
    line.append(element("th", name, { scope: "row" }), element("td", value));
    return line;
  }));
}

function showCode(rung) {
  const isWgsl = $("language").value === "wgsl";
  $("removed").disabled = isWgsl;
  if (isWgsl) {
    $("code-note").textContent = rung.wgsl ? "The same step in WGSL, which the page runs in your browser."
      : "This step has no WGSL version.";
    $("code").replaceChildren(...(rung.wgsl ?? "").split("\n").map(text => element("span", text || " ")));
    return;
  }
  $("code-note").textContent = rung.before ? `${rung.file}. Marked: what differs from step ${rung.before}.` : rung.file;
  $("code").replaceChildren(...rung.code.filter(([mark]) => mark !== "-" || $("removed").checked).map(([mark, text]) =>
    element("span", `${mark} ${text}`, mark === "+" ? { class: "added" } : mark === "-" ? { class: "removed" } : {})));
  const first = $("code").querySelector(".added, .removed");
  $("code").scrollTop = first ? first.offsetTop - $("code").offsetTop - 60 : 0;
}

function showSliders(rung) {
  const slider = (name, meaning, values, value, change) => {
    const label = element("label", meaning), input = element("input", undefined,
      { type: "range", min: 0, max: values.length - 1, step: 1, name }), output = element("output", values[value]);
    input.value = value;
    input.setAttribute("aria-valuetext", values[value]);
    input.addEventListener("input", () => {
      output.textContent = values[input.value];
      input.setAttribute("aria-valuetext", values[input.value]);
      change(values[input.value]);
    });
    label.append(input, output);
    return label;
  };
  // Sub-groups read tiles for tensor cores together: there is no picture of a single work-item.
  $("reads").hidden = !rung.pictured;
  if (!rung.pictured) {
    play(false);
    now.rung = null;
    return;
  }
  state.values = {};
  const names = Object.keys(VALUES).filter(name => rung.parameters.includes(name));
  const sliders = names.map(name => {
    state.values[name] = VALUES[name][1];
    return slider(name, MEANINGS[name], VALUES[name], 1, value => {
      state.values[name] = value;
      // One loop fetches both tiles up to step 9.
      if (rung.same_sides && (name === "tile_m" || name === "tile_n"))
        for (const other of ["tile_m", "tile_n"]) {
          state.values[other] = value;
          const input = $("sliders").querySelector(`[name=${other}]`);
          input.value = VALUES[other].indexOf(value);
          input.nextSibling.textContent = value;
        }
      restart();
    });
  });
  const item = slider("item", "work-item", [...Array(256).keys()], 0, value => {
    state.item = value;
    redraw();
  });
  $("sliders").replaceChildren(...sliders, item);
  restart();
}

function restart() {
  now.rung = rungOf(state.number);
  now.geometry = geometry(now.rung, state.values);
  now.frames = frames(now.rung, now.geometry);
  state.frame = 0;
  state.item = Math.min(state.item, now.geometry.items - 1);
  const input = $("sliders").querySelector("[name=item]");
  input.max = now.geometry.items - 1;
  input.value = state.item;
  input.nextSibling.textContent = state.item;
  redraw();
}

function redraw() {
  if (!now.rung) return;
  const frame = now.frames[state.frame % now.frames.length];
  draw($("picture"), now.rung, now.geometry, state.item, frame);
  $("reading").textContent = sentence(now.rung, now.geometry, state.item, frame);
}

function advance() {
  state.frame = (state.frame + 1) % now.frames.length;
  redraw();
}

function play(on) {
  clearInterval(state.timer);
  state.timer = on ? setInterval(advance, 700) : null;
  $("play").textContent = on ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", on);
}

function choose(number) {
  state.number = number;
  for (const stair of $("stairs").querySelectorAll(".stair"))
    stair.setAttribute("aria-pressed", Number(stair.dataset.rung) === number);
  const rung = rungOf(number);
  $("previous").disabled = number === DATA.rungs[0].number;
  $("next").disabled = number === DATA.rungs.at(-1).number;
  showWords(rung);
  showFigures(rung);
  showCode(rung);
  showSliders(rung);
  history.replaceState(null, "", `#step-${number}`);
}

function chooseClimb(index) {
  state.climb = index;
  showStairs();
  showFigures(rungOf(state.number));
}

async function runInBrowser() {
  $("run").disabled = true;
  const n = Number($("size").value), body = $("results").tBodies[0], status = text => { $("webgpu").textContent = text; };
  body.replaceChildren();
  try {
    status("Opening the GPU.");
    const gpu = await openGpu();
    status("Computing the sums in float64.");
    const operands = { a: numbers(n * n, 1), b: numbers(n * n, 2) };
    const entries = await expected(operands.a, operands.b, n);
    const climb = { name: `Your GPU: ${gpu.name}`, n, rungs: {}, peers: [], refused: {},
      note: "Measured in this page through WebGPU, by the page's clock. Steps 8, 9, and 11 and up have no WGSL version." };
    $("results").hidden = false;
    $("results").caption.textContent = `${gpu.name}, n = ${n}, ${entries.length.toLocaleString("en")} entries checked`;
    for (const rung of DATA.rungs.filter(rung => rung.wgsl)) {
      status(`Running step ${rung.number}.`);
      const line = element("tr");
      line.append(element("th", `${rung.number} ${rung.title}`, { scope: "row" }));
      try {
        const source = file => file ? DATA.support[file] : rung.wgsl;
        const found = await runRung(gpu, source, rung.number, n, operands, entries);
        climb.rungs[rung.number] = found;
        line.append(element("td", found.correct ? "passed" : "FAILED", { class: found.correct ? "pass" : "fail" }),
          element("td", figure(found.gflops)), element("td", found.error.toExponential(1)),
          element("td", found.error_bound.toExponential(1)));
      } catch (error) {
        climb.refused[rung.number] = error.message;
        line.append(element("td", error.message, { colspan: 4, class: error instanceof RangeError ? "" : "fail" }));
      }
      body.append(line);
    }
    DATA.climbs = DATA.climbs.filter(other => !other.name.startsWith("Your GPU") || other.n !== n);
    DATA.climbs.push(climb);
    state.climb = DATA.climbs.length - 1;
    showDevices();
    chooseClimb(state.climb);
    const wrong = Object.values(climb.rungs).filter(found => !found.correct).length;
    status(`Done: ${Object.keys(climb.rungs).length - wrong} steps passed, ${wrong} failed, ` +
      `${Object.keys(climb.refused).length} did not run. The stairs above show your GPU.`);
  } catch (error) {
    status(error.message);
  } finally {
    $("run").disabled = false;
  }
}

showDevices();
$("device").addEventListener("change", () => chooseClimb(Number($("device").value)));
$("previous").addEventListener("click", () => choose(state.number - 1));
$("next").addEventListener("click", () => choose(state.number + 1));
$("play").addEventListener("click", () => play(!state.timer));
$("forward").addEventListener("click", () => { play(false); advance(); });
$("removed").addEventListener("change", () => showCode(rungOf(state.number)));
$("language").addEventListener("change", () => showCode(rungOf(state.number)));
$("run").addEventListener("click", runInBrowser);
$("stairs").addEventListener("keydown", event => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!by || !rungOf(state.number + by)) return;
  event.preventDefault();
  choose(state.number + by);
  $("stairs").querySelector("[aria-pressed=true]").focus();
});
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
showStairs();
choose(rungOf(Number(location.hash.replace("#step-", ""))) ? Number(location.hash.replace("#step-", "")) : 1);
if (!navigator.gpu) {
  $("run").disabled = true;
  openGpu().catch(error => { $("webgpu").textContent = error.message; });
}
