// Synchronisation on NVIDIA's compute capability 9.0: barriers in local memory (mbarrier), bulk copies to local memory, and
// atomic counters between work-groups.
// After: NVIDIA, "Parallel thread execution ISA", mbarrier, memory consistency model.
// The text of a macro's value, for inline assembly.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// Barriers in local memory, by their address. They count arrivals, and bytes that copies bring.
static inline void initialise(uint barrier, uint arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to those that wait behind the next barrier of the work-group.
static inline void fence_initialised(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

static inline void expect(uint barrier, uint bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

static inline void arrive(uint barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

static inline void wait_for(uint barrier, uint parity) {
  uint done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}

// Starts a bulk copy to local memory by the copy engine. The barrier must expect its bytes.
static inline void fetch(uint to, __global const uchar* from, uint bytes, uint barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// Reads an atomic counter. What others wrote before they counted is visible afterwards.
static inline uint counted(__global const uint* counter) {
  uint now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  return now;
}

static inline void count_up(__global uint* counter, uint by) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" :: "l"(counter), "r"(by) : "memory");
}

// Counts one more, and returns how many did before. What they wrote before they counted is visible afterwards.
static inline uint count_and_see(__global uint* counter) {
  uint before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Makes plain writes to global memory, and what plain reads there have seen, visible to the copy engine. A fence for all kinds
// of memory would also wait until the writes have arrived, about 1500 cycles; who counts afterwards waits for that once.
static inline void fence_copies(void) { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Moves on to the next of several stages, which are used in turn. `round` is the parity of a stage's uses.
static inline void next_stage(int* stage, uint* round, const int stages) {
  if (++*stage == stages) {
    *stage = 0;
    *round ^= 1;
  }
}
