// C = alpha*A*B + beta*C on tensor cores in a single launch, for products so small that launches take as long as the
// arithmetic. It splits (tensor_core/pack.cl), multiplies (tensor_core/wgmma.cl) and, with GUARD, falls back
// (tensor_core/fallback.cl). One matrix; otherwise the parameters of those kernels.
// Atomic counters, all 0 before and after:
//   counters[0]    tiles that work-groups have taken to split
//   counters[1]    tiles that are split; plus GIVES_UP once there are too many outliers; plus LEFT for each work-group
//                 that no longer reads the counters, of which the last sets them to 0
//   counters[2] on  those of split-k
// The fallback is cut along k by plain_whole and plain_slices.
// Work-groups take tiles to split until none is left, wait until all are split, and multiply. Deadlock-free: a work-group
// waits only for tiles that others have taken, which therefore are running. With too many outliers no more tiles are split,
// and no work-group waits.
//
// Work-groups: as many as compute units, 384 work-items each. Local: that of tensor_core/wgmma.cl and SplitMemory.
#define MEMORY_BYTES (!GUARD || STAGES * STAGE_BYTES > PLAIN_BYTES ? STAGES * STAGE_BYTES : PLAIN_BYTES)
#define LEFT (1u << 20)  // more than there are tiles
#define GIVES_UP (1u << 31)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_single_launch(const int m, const int n, const int k, const int least, const int most, const float alpha, const float beta,
                    __global const float* a, const long a_offset, const long a_row, const long a_column,
                    __global const float* b, const long b_offset, const long b_row, const long b_column,
                    __global uchar* packed_a, __global uchar* packed_b,
                    __global float* c, const long c_offset, const long c_row, const long c_column,
                    __global uint* count, __global uint* count_next,
                    const int whole, const int slices, __global float4* partial, __global uint* counters,
                    const int plain_whole, const int plain_slices) {
  __local uchar memory[BARRIERS_BYTES + MEMORY_BYTES] __attribute__((aligned(1024)));
  __local float corners[8 * CORNER] __attribute__((aligned(16)));
  __local SplitMemory splitting;
  __local uint drawn, gives_up, listed, earlier;
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma and setmaxnreg
  const uint item = get_local_id(0), base = (uint)(ulong)(__local void*)memory;
  const Product p = {1, m, n, k, least, most, a + a_offset, a_row, a_column, 0, b + b_offset, b_row, b_column, 0,
                     packed_a, packed_b, count};
  if (item < 256) {
    const uint tiles = (panels_of(m) + panels_of(n)) * depths_of(k);
    uint next = 0;
    if (item == 0) {
      if (GUARD && get_group_id(0) == 0) *count_next = 0;
      next = atomic_add(counters, 1);
    }
    bool given_up = false;
    for (;;) {
      if (item == 0) drawn = next;
      split_barrier();
      const uint tile = drawn;
      if (tile >= tiles) break;
      if (item == 0) next = atomic_add(counters, 1);  // early, to hide its latency
      given_up = !split_tile(&p, tile, &splitting);
      if (given_up) break;
      fence_copies();
      split_barrier();
      if (item == 0) count_up(counters + 1, 1);
    }
    if (item == 0) {
      if (given_up) {
        atomic_or(counters + 1, GIVES_UP);
      } else {
        uint now;
        do now = counted(counters + 1);
        while ((now & (LEFT - 1)) < tiles && !(now & GIVES_UP));
        listed = GUARD ? counted(count) : 0;
        given_up = now & GIVES_UP || (GUARD && listed > most);
      }
      gives_up = given_up;
      for (int stage = 0; stage < 8; stage++) {
        initialise(FULL(stage), given_up ? 2 * FEEDERS : 1);
        initialise(EMPTY(stage), 8);
      }
      fence_initialised();
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  const Cuts cuts = {whole, slices, partial, counters + 2}, plain_cuts = {plain_whole, plain_slices, partial, counters + 2};
  if (item >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
    if (GUARD && gives_up) {
      feed_plain(&p, &plain_cuts, memory);
    } else if (item == 256) {
      fence_copies();
      feed_tiles(&p, &cuts, base);
    }
    if (item == 256 && (atomic_add(counters + 1, LEFT) & ~GIVES_UP) / LEFT == get_num_groups(0) - 1)
      counters[0] = counters[1] = 0;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
    if (GUARD && gives_up)
      multiply_plain(&p, &plain_cuts, alpha, beta, c + c_offset, c_row, c_column, memory, &earlier);
    else
      multiply_tiles(&p, &cuts, alpha, beta, c + c_offset, c_row, c_column, 0, listed, memory, corners, &earlier);
  }
}
