// Copies from global to local memory that need no registers: cp.async of NVIDIA's GPUs from compute capability 8.0 on.
//   LOCAL_ADDRESS(floats)               the address of floats in local memory, as the copies take it
//   COPY(floats)(to, from)              begin to copy 1, 2 or 4 floats, aligned to their size
//   COPY_PART(floats)(to, from, there)  the same; zeros if not `there`
//   end_copies()                        what was begun since the last call is one tile
//   wait_for_copies()                   until the tiles but the last BUFFERS - 2 are complete; a barrier must follow
// That a copy writes to memory is said by the last two alone: so arithmetic may be moved past a copy.
// After: NVIDIA, "Parallel thread execution ISA", cp.async.
#if ASYNCHRONOUS
#define LOCAL_ADDRESS(floats) ((uint)(ulong)(floats))
#define COPY(floats) JOIN(copy_, floats)
#define COPY_PART(floats) JOIN(copy_part_, floats)
#define DEFINE_COPY(floats, bytes)                                                                          \
  static inline void copy_##floats(const uint to, __global const float* from) {                             \
    asm volatile("cp.async.ca.shared.global [%0], [%1], " #bytes ";" :: "r"(to), "l"(from));                \
  }                                                                                                         \
                                                                                                            \
  static inline void copy_part_##floats(const uint to, __global const float* from, const bool there) {      \
    asm volatile("cp.async.ca.shared.global [%0], [%1], " #bytes ", %2;"                                    \
                 :: "r"(to), "l"(from), "r"(there ? bytes : 0));                                            \
  }
DEFINE_COPY(1, 4)
DEFINE_COPY(2, 8)
DEFINE_COPY(4, 16)

static inline void end_copies(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

static inline void wait_for_copies(void) { asm volatile("cp.async.wait_group %0;" :: "n"(BUFFERS - 2) : "memory"); }
#endif
