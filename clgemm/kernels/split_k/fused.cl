// Fused split-k: the last work-group to write its slice of a tile of C adds up all slices of the tile,
// in the same launch. No work-group waits for another.
//   slices_out      slices, in the layout of the kernel that includes this file
//   counters[i]   atomic counter: work-groups that have written their slice of tile i; 0 before and after
// Needs atomic operations with acquire and release semantics: OpenCL C 3.0 or NVIDIA's compiler.
#ifndef FUSED_SPLIT_K
#error "FUSED_SPLIT_K: 1 if the last work-group adds slices up, 0 if another launch does"
#endif

#if FUSED_SPLIT_K
#define FUSED_ARGUMENTS , __global float* slices_out, __global uint* counters

// Whether this work-group is the last of `slices` to write; if so, it sees what the others have written.
// Call it with all work-items, after each has written its part of the slice.
static inline bool comes_last(__global uint* counter, uint slices, __local uint* earlier) {
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    uint count;
#ifdef __NV_CL_C_VERSION  // its OpenCL C has no fences between work-groups
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(count) : "l"(counter) : "memory");
#else
    count = atomic_fetch_add_explicit((volatile __global atomic_uint*)counter, 1u, memory_order_acq_rel, memory_scope_device);
#endif
    if (count == slices - 1) *counter = 0;
    *earlier = count;
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  return *earlier == slices - 1;
}
#else
#define FUSED_ARGUMENTS
#endif
