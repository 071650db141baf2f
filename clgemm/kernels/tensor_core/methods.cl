// The methods of a product on tensor cores, and how a work-group falls back from one to the next:
//   halves    Parts are in fp16. The launch before has split them.
//   tf32      Parts are in tf32, if there are too many outliers (GUARD only).
//   plain     Products are in IEEE single precision, if there are too many then, too.
//
// To split into tf32, work-groups take tiles until none is left, and wait until all are split. Deadlock-free: a work-group
// waits only for tiles that others have taken, which therefore are running. With too many outliers no more tiles are split,
// and no work-group waits.
//
// Atomic counters, all 0 before and after:
//   counters[0]     Tiles that work-groups have taken to split.
//   counters[1]     Tiles that are split. GIVES_UP is added once there are too many outliers, and LEFT for each work-group
//                   that no longer reads the counters. The last one sets them to 0.
//   counters[2]     Outliers of tf32.
//   counters[3] on  Those of split-k.
#define LEFT (1u << 20)  // more than there are tiles
#define GIVES_UP (1u << 31)
#define OUTLIERS_OF_TF32 2
#define LOADED 3  // tiles in registers: two are on their way while one is split
#define OF_SLICES 3
enum { IN_HALVES, IN_TF32, PLAINLY };

#define MEMORY_BYTES (!GUARD || STAGES * STAGE_BYTES > PLAIN_BYTES ? STAGES * STAGE_BYTES : PLAIN_BYTES)

// Local memory of a work-group.
typedef struct {
  uchar tiles[BARRIERS_BYTES + MEMORY_BYTES] __attribute__((aligned(1024)));
  float corners[8 * CORNER] __attribute__((aligned(16)));
  SplitMemory splitting;
  uint drawn, gives_up, listed, earlier;
} Memory;

// C, and how it is cut: for halves and tf32, and for the plain method.
typedef struct {
  __global float* c;
  long c_row, c_column, c_stride;
  float alpha, beta;
  Cuts cuts, plain_cuts;
} Result;

// Take the next tile, whose number work-item 0 has in `next`. Call split_barrier before the next call.
static inline uint draw(uint* next, __global uint* counters, __local Memory* s) {
  if (get_local_id(0) == 0) s->drawn = *next, *next = atomic_add(counters, 1);  // early, to hide its latency
  split_barrier();
  return s->drawn;
}

// Split all tiles into tf32, together with the other work-groups. Returns whether there are too many outliers; otherwise
// sets s->listed to their number.
static inline bool split_in_tf32(const Product* p, __global uint* counters, __local Memory* s) {
  const uint item = get_local_id(0);
  if (item < SPLIT_ITEMS) {
    const uint tiles = split_panels(p) * depths_of(p->k, true);
    uint next = 0, done = 0, drawn[LOADED];
    if (item == 0) next = atomic_add(counters, 1);
    Share shares[LOADED];
    bool gives_up = false;
    #pragma unroll 1
    for (int turn = 1 - LOADED; ; turn++) {
      #pragma unroll
      for (int i = 1; i < LOADED; i++) drawn[i - 1] = drawn[i], shares[i - 1] = shares[i];
      const uint tile = draw(&next, counters, s);
      if (tile < tiles) load_share(p, true, tile, &shares[LOADED - 1]);
      drawn[LOADED - 1] = tile;
      if (turn >= 0) {
        if (drawn[0] >= tiles) break;
        gives_up = !split_tile(p, true, &shares[0], &s->splitting);
        if (gives_up) break;
        done++;
      }
      split_barrier();
    }
    fence_copies();
    split_barrier();
    if (item == 0) {
      if (gives_up) {
        atomic_or(counters + 1, GIVES_UP);
      } else {
        count_up(counters + 1, done);  // once: each time takes as long as a write to memory
        uint now;
        do now = counted(counters + 1);
        while ((now & (LEFT - 1)) < tiles && !(now & GIVES_UP));
        s->listed = counted(p->count);
        gives_up = now & GIVES_UP || s->listed > p->most;
      }
      s->gives_up = gives_up;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return s->gives_up;
}

// This work-group, by one work-item, no longer reads the counters of tf32. The last one sets them to 0.
static inline void leave(__global uint* counters) {
  if ((atomic_add(counters + 1, LEFT) & ~GIVES_UP) / LEFT == get_num_groups(0) - 1)
    counters[0] = counters[1] = counters[OUTLIERS_OF_TF32] = 0;
}

// Multiply what is split into halves, `listed` of them outliers. With too many of these, fall back.
static inline void multiply_or_fall_back(const Product* p, Result* r, uint listed, __global uint* counters, __local Memory* s) {
  const uint item = get_local_id(0), base = (uint)(ulong)s->tiles;
  int method = IN_HALVES;
  const bool gives_up = GUARD && listed > p->most;
#if GUARD
  if (gives_up) {
    Product in_tf32 = *p;
    in_tf32.count = counters + OUTLIERS_OF_TF32;
    method = split_in_tf32(&in_tf32, counters, s) ? PLAINLY : IN_TF32;
    listed = s->listed;
  }
#endif
  const bool tf32 = GUARD && method == IN_TF32;
  if (item == 0) {
    for (int stage = 0; stage < 8; stage++) {
      initialise(FULL(stage), method == PLAINLY ? 2 * FEEDERS : 1);
      initialise(EMPTY(stage), 8);
    }
    fence_initialised();
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  if (item >= 256) {
#if GUARD
    if (method == PLAINLY) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
      feed_plain(p, &r->plain_cuts, s->tiles);
    } else
#endif
    {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (item == 256) {
        fence_copies();
        feed_tiles(p, tf32, &r->cuts, base);
      }
    }
    if (gives_up && item == 256) leave(counters);
  } else {
#if GUARD
    if (method == PLAINLY) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
      multiply_plain(p, &r->plain_cuts, r->alpha, r->beta, r->c, r->c_row, r->c_column, r->c_stride, s->tiles, &s->earlier);
    } else
#endif
    {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
      multiply_tiles(p, tf32, &r->cuts, r->alpha, r->beta, r->c, r->c_row, r->c_column, r->c_stride, listed, s->tiles,
                     s->corners, &s->earlier);
    }
  }
}
