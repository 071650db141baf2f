// The picture of which work-item reads what: A to the left of C, B above it, as in the product.
//
// A frame is one step along k. First the work-items copy a tile (rungs with local memory), then the
// chosen work-item reads one column of A's tile and one row of B's in each frame.
const VALUES = { tile: [4, 8], tile_m: [4, 8, 16], tile_n: [4, 8, 16], tile_k: [2, 4, 8], work_m: [1, 2, 4],
  work_n: [1, 2, 4], width: [1, 2, 4] };
const MEANINGS = { tile: "side of a tile", tile_m: "rows of C's tile", tile_n: "columns of C's tile",
  tile_k: "depth of the tiles", work_m: "rows per work-item", work_n: "columns per work-item",
  width: "floats per vector" };
const TILES_ALONG_K = 3;

// The sizes that the picture of a rung has, from the positions of its sliders.
function geometry(rung, values) {
  const square = "tile" in values;
  const tileM = square ? values.tile : values.tile_m, tileN = square ? values.tile : values.tile_n;
  const width = Math.min(values.width ?? 1, tileM);
  const rows = Math.min(rung.wide_rows ? (values.work_m ?? width) : (values.work_m ?? 1), tileM);
  const columns = Math.min(values.work_n ?? 1, tileN);
  const tileK = !rung.local ? (values.width && rung.wide_rows ? width : 1)
    : square ? values.tile : values.tile_k;
  const itemsM = tileM / rows, itemsN = tileN / columns;
  return { tileM, tileN, tileK, rows, columns, itemsM, itemsN, items: itemsM * itemsN, width: values.width ? width : 1,
    k: TILES_ALONG_K * (rung.local ? tileK : Math.max(tileK, 4)) };
}

// The elements of C that belong to work-item (x, y): apart in most rungs, adjacent in vectors.
function owned(rung, g, item) {
  const x = item % g.itemsM, y = Math.floor(item / g.itemsM);
  const place = (count, together, items, at) => [...Array(count).keys()].map(i =>
    (Math.floor(i / together) * items + at) * together + i % together);
  const inVectors = count => Math.min(rung.in_vectors ? g.width : 1, count);
  const rows = place(g.rows, rung.wide_rows ? g.rows : inVectors(g.rows), g.itemsM, x);
  const columns = place(g.columns, rung.wide_columns ? g.columns : inVectors(g.columns), g.itemsN, y);
  return { x, y, rows, columns };
}

// The [row, depth] of a tile's elements that a work-item copies; `along` is the side that varies first.
function copied(g, item, side, depth, alongSide) {
  const found = [], loads = Math.ceil(side * depth / g.width / g.items);
  for (let load = 0; load < loads; load++)
    for (let w = 0; w < g.width; w++) {
      const element = (load * g.items + item) * g.width + w;
      if (element >= side * depth) continue;
      const fast = alongSide ? side : depth, first = element % fast, second = Math.floor(element / fast);
      found.push(alongSide ? [first, second] : [second, first]);
    }
  return found;
}

function frames(rung, g) {
  const all = [];
  for (let depth = 0; depth < g.k; depth += g.tileK) {
    if (rung.local) all.push({ phase: "copy", depth });
    for (let p = 0; p < g.tileK; p++) all.push({ phase: "read", depth, p });
  }
  return all;
}

function sentence(rung, g, item, frame) {
  const { x, y } = owned(rung, g, item);
  const who = `Work-item (${x}, ${y}) of ${g.itemsM} x ${g.itemsN}`;
  const madds = g.rows * g.columns, reads = g.rows + (rung.shuffle ? 1 : g.columns);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  for (const side of rung.local && !rung.device_copies ? [g.tileM, g.tileN] : [])
    if (side * g.tileK % (g.width * g.items))
      return `The kernel refuses these sizes: ${g.items} work-items cannot share ${side * g.tileK} floats ` +
        `in vectors of ${g.width} evenly.`;
  if (frame.phase === "copy" && rung.device_copies)
    return `${who} starts the copies and waits for them. The device copies ${g.tileK * (g.tileM + g.tileN)} floats.`;
  if (frame.phase === "copy") {
    const a = copied(g, item, g.tileM, g.tileK, true).length, b = copied(g, item, g.tileN, g.tileK, !rung.b_along_k).length;
    return `${who} copies ${plural(a, "float")} of A and ${plural(b, "float")} of B from global to local memory. ` +
      `The work-group copies ${g.tileK * (g.tileM + g.tileN)} floats, and uses each of A's ${g.tileN} times ` +
      `and each of B's ${g.tileM} times.`;
  }
  const from = rung.local ? "local memory" : "global memory";
  return `${who} reads ${plural(g.rows, "float")} of A and ${plural(g.columns, "float")} of B from ${from} ` +
    `for ${plural(madds, "multiply-add")}: ${(reads / madds).toFixed(2)} reads for each.`;
}

function draw(canvas, rung, g, item, frame) {
  const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(`--${name}`).trim();
  const gap = 1.5, m = g.tileM * 2, n = g.tileN * 2;
  const across = g.k + gap + n, down = g.k + gap + m, ratio = window.devicePixelRatio || 1;
  const cell = Math.max(2, Math.min((canvas.clientWidth || 300) / (across + 1.6), 30));
  canvas.width = Math.round((canvas.clientWidth || 300) * ratio);
  canvas.height = Math.round((down + 1.6) * cell * ratio);
  canvas.style.height = `${(down + 1.6) * cell}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 1.3 * cell, 1.3 * cell);
  const mine = owned(rung, g, item), depth = frame.depth, inTile = p => p >= depth && p < depth + g.tileK;
  const set = pairs => new Set(pairs.map(([a, b]) => `${a},${b}`));
  const ofA = frame.phase === "copy" && !rung.device_copies ? set(copied(g, item, g.tileM, g.tileK, true)) : new Set();
  const ofB = frame.phase === "copy" && !rung.device_copies ? set(copied(g, item, g.tileN, g.tileK, !rung.b_along_k)) : new Set();
  const now = frame.phase === "read" ? depth + frame.p : -1;
  const box = (column, row, fill) => {
    pen.fillStyle = fill;
    pen.fillRect(column * cell + .5, row * cell + .5, cell - 1, cell - 1);
  };
  const plain = colour("panel"), group = colour("group");
  const a0 = { column: 0, row: g.k + gap }, b0 = { column: g.k + gap, row: 0 }, c0 = { column: b0.column, row: a0.row };
  for (let p = 0; p < g.k; p++) {
    for (let i = 0; i < m; i++) {
      const fill = i >= g.tileM || !inTile(p) ? plain
        : p === now && mine.rows.includes(i) ? colour("now") : ofA.has(`${i},${p - depth}`) ? colour("copied") : group;
      box(a0.column + p, a0.row + i, fill);
    }
    for (let j = 0; j < n; j++) {
      const fill = j >= g.tileN || !inTile(p) ? plain
        : p === now && mine.columns.includes(j) ? colour("now") : ofB.has(`${j},${p - depth}`) ? colour("copied") : group;
      box(b0.column + j, b0.row + p, fill);
    }
  }
  for (let i = 0; i < m; i++)
    for (let j = 0; j < n; j++)
      box(c0.column + j, c0.row + i, i >= g.tileM || j >= g.tileN ? plain
        : mine.rows.includes(i) && mine.columns.includes(j) ? colour("item") : group);
  pen.fillStyle = colour("ink");
  pen.font = `${Math.max(11, Math.min(cell, 16))}px system-ui, sans-serif`;
  pen.textBaseline = "bottom";
  for (const [name, at] of [["A", a0], ["B", b0], ["C", c0]])
    pen.fillText(name, at.column * cell, at.row * cell - 1);
}
