// The rungs on the reader's own GPU. The sources and their constants are in the page's data.
const WGSL_PARAMETERS = {
  1: { TILE: 16 }, 2: { TILE: 16 }, 3: { TILE: 32, WORK_N: 8 }, 4: { TILE: 32 },
  5: { TILE_M: 64, TILE_N: 64, TILE_K: 16, WORK_N: 16 },
  6: { TILE_M: 64, TILE_N: 64, TILE_K: 16, WORK_M: 4, WORK_N: 4 },
  7: { TILE_M: 64, TILE_N: 64, TILE_K: 16, WORK_M: 4, WORK_N: 4 },
  10: { TILE_M: 64, TILE_N: 64, TILE_K: 16, WORK_M: 4, WORK_N: 4 },
};
const SQUARE = 16;
const ROUNDOFF = 2 ** -24;
const LONG_ENOUGH_MS = 60;
const ENTRIES = 65536;  // of C that are compared with float64, or all if there are fewer

// The launches of one product: module, entry point, sizes, buffers by name, and workgroups.
function launches(number, n) {
  const p = WGSL_PARAMETERS[number], up = (size, tile) => Math.ceil(size / tile) * tile;
  const tile = { m: p.TILE_M ?? p.TILE, n: p.TILE_N ?? p.TILE, k: p.TILE_K ?? p.TILE };
  const padded = { m: up(n, tile.m), n: up(n, tile.n), k: up(n, tile.k) };
  const any = number === 10;
  if (!any && (padded.m !== n || padded.n !== n || padded.k !== n))
    throw new RangeError(`n = ${n} is not a multiple of the tile's ${Math.max(tile.m, tile.n, tile.k)}`);
  const square = (file, entry, sizes, buffers, rows, columns) => ({ file, entry, sizes, buffers,
    constants: { SQUARE }, groups: [Math.ceil(rows / SQUARE), Math.ceil(columns / SQUARE)] });
  const all = [];
  if (any) {
    all.push(square("pad.wgsl", "pad", [n, n, padded.m, padded.k], ["a", "a_padded"], padded.m, padded.k));
    all.push(square("pad.wgsl", "pad", [n, n, padded.k, padded.n], ["b", "b_padded"], padded.k, padded.n));
  }
  if (number >= 5)
    all.push(square("transpose.wgsl", "transpose", [padded.k, padded.n, 0, 0],
      [any ? "b_padded" : "b", "b_t"], padded.k, padded.n));
  all.push({ file: null, entry: "multiply", sizes: [padded.m, padded.n, padded.k, 0], constants: p,
    buffers: [any ? "a_padded" : "a", number >= 5 ? "b_t" : "b", any ? "c_padded" : "c"],
    groups: [padded.m / tile.m, padded.n / tile.n] });
  if (any) all.push(square("pad.wgsl", "unpad", [n, n, padded.m, padded.n], ["c_padded", "c"], n, n));
  return { all, floats: { a: n * n, b: n * n, c: n * n, a_padded: padded.m * padded.k, b_padded: padded.k * padded.n,
    b_t: padded.k * padded.n, c_padded: padded.m * padded.n } };
}

// Numbers between -1 and 1 in float32, the same in each run.
function numbers(count, seed) {
  const values = new Float32Array(count);
  for (let i = 0, state = seed; i < count; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 31 - 1;
  }
  return values;
}

// Entries of A*B in float64, and of |A|*|B|: all of them, or some of each row and column.
async function expected(a, b, n) {
  const perRow = Math.min(n, Math.max(16, Math.floor(ENTRIES / n))), entries = [];
  for (let i = 0; i < n; i++) {
    for (let s = 0; s < perRow; s++) {
      const j = perRow === n ? s : (i * 7 + Math.floor(s * n / perRow)) % n;
      let sum = 0, size = 0;
      for (let p = 0; p < n; p++) {
        const product = a[p * n + i] * b[j * n + p];  // exact in float64
        sum += product;
        size += Math.abs(product);
      }
      entries.push([j * n + i, sum, size]);
    }
    if (i % 64 === 63) await new Promise(resolve => setTimeout(resolve));  // the page stays alive
  }
  return entries;
}

// The largest |C - C_ref| / (|A| |B|); infinite if an entry was not written.
function largestError(c, entries) {
  let largest = 0;
  for (const [at, sum, size] of entries) {
    const error = Math.abs(c[at] - sum) / size;
    if (!(error <= largest)) largest = Number.isNaN(error) ? Infinity : error;
  }
  return largest;
}

let opened = null;  // the GPU and its compiled kernels, until it is lost

async function openGpu() {
  if (opened) return opened;
  if (!navigator.gpu)
    throw new Error("This browser has no WebGPU, or does not offer it to this page. The steps cannot run here. " +
      "Recent versions of Chrome, Edge, Safari and Firefox have it on most systems.");
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter)
    throw new Error("This browser has WebGPU, but found no GPU that it can use. The steps cannot run here.");
  const largest = adapter.limits.maxStorageBufferBindingSize;
  const device = await adapter.requestDevice({ requiredLimits: {
    maxStorageBufferBindingSize: largest, maxBufferSize: Math.max(largest, adapter.limits.maxBufferSize) } });
  const info = adapter.info ?? {};
  const name = [info.vendor, info.description || info.architecture].filter(Boolean).join(" ") || "unknown GPU";
  opened = { device, name, pipelines: new Map() };
  device.lost.then(() => { opened = null; });
  return opened;
}

// The pipeline of a launch, which is compiled once for each GPU.
async function compiled({ device, pipelines }, launch, source) {
  const constants = Object.entries(launch.constants).map(([name, value]) => `const ${name} = ${value}u;\n`);
  const code = constants.join("") + source, key = `${launch.entry}\n${code}`;
  if (!pipelines.has(key)) {
    const module = device.createShaderModule({ code });
    const faults = (await module.getCompilationInfo()).messages.filter(message => message.type === "error");
    if (faults.length) throw new Error(faults.map(fault => `line ${fault.lineNum}: ${fault.message}`).join("; "));
    pipelines.set(key, await device.createComputePipelineAsync({ layout: "auto",
      compute: { module, entryPoint: launch.entry } }));
  }
  return pipelines.get(key);
}

// Run one rung: its error against `entries`, and its speed by the page's clock.
async function runRung(gpu, source, number, n, operands, entries) {
  const { device } = gpu, plan = launches(number, n), made = [];
  const buffer = (size, usage) => {
    made.push(device.createBuffer({ size, usage }));
    return made.at(-1);
  };
  device.pushErrorScope("out-of-memory");
  device.pushErrorScope("validation");
  try {
    const { STORAGE, COPY_SRC, COPY_DST, UNIFORM, MAP_READ } = GPUBufferUsage, buffers = {};
    for (const name of new Set(plan.all.flatMap(launch => launch.buffers))) {
      buffers[name] = buffer(4 * plan.floats[name], STORAGE | COPY_SRC | COPY_DST);
      device.queue.writeBuffer(buffers[name], 0, operands[name] ?? new Float32Array(plan.floats[name]).fill(NaN));
    }
    const steps = [];
    for (const launch of plan.all) {
      const pipeline = await compiled(gpu, launch, source(launch.file));
      const sizes = buffer(16, UNIFORM | COPY_DST);
      device.queue.writeBuffer(sizes, 0, new Uint32Array(launch.sizes));
      const entriesOfGroup = [sizes, ...launch.buffers.map(name => buffers[name])];
      steps.push({ pipeline, groups: launch.groups, bindings: device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: entriesOfGroup.map((one, binding) => ({ binding, resource: { buffer: one } })) }) });
    }
    const once = () => {
      const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
      for (const step of steps) {
        pass.setPipeline(step.pipeline);
        pass.setBindGroup(0, step.bindings);
        pass.dispatchWorkgroups(...step.groups);
      }
      pass.end();
      device.queue.submit([encoder.finish()]);
    };
    once();
    const read = buffer(4 * n * n, MAP_READ | COPY_DST), encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffers.c, 0, read, 0, 4 * n * n);
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(GPUMapMode.READ);
    const error = largestError(new Float32Array(read.getMappedRange()), entries);
    read.unmap();
    let ms = 0, runs = 1;
    for (; ; runs *= 2) {
      const begin = performance.now();
      for (let run = 0; run < runs; run++) once();
      await device.queue.onSubmittedWorkDone();
      ms = performance.now() - begin;
      if (ms >= LONG_ENOUGH_MS || runs >= 1024) break;
    }
    const bound = n * ROUNDOFF / (1 - n * ROUNDOFF);
    return { gflops: 2 * n ** 3 * runs / ms / 1e6, error, error_bound: bound, correct: error <= bound };
  } finally {
    const faults = [await device.popErrorScope(), await device.popErrorScope()].filter(Boolean);
    for (const one of made) one.destroy();
    if (faults.length) throw new Error(faults.map(fault => fault.message).join("; "));
  }
}
