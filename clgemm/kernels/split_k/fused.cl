// How the last of the work-groups that make the slices of one result learns that it is the last, and sees what the
// others have written: it may add the slices up in the same launch.
//   gathered      slices, as the kernel lays them out
//   counters[i]   work-groups that have written their slice of result i; 0 before and after
#ifndef GATHERS
#error "GATHERS: 1 if the last work-group adds slices up, 0 if another launch does"
#endif

#if GATHERS
#define GATHER_ARGUMENTS , __global float* gathered, __global uint* counters

// Called by all work-items, once each has written its part of the slice. Nobody waits for anybody.
static inline bool comes_last(__global uint* counter, uint slices, __local uint* earlier) {
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    uint count;
#ifdef __NV_CL_C_VERSION  // whose OpenCL C has fences within a work-group only
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
#define GATHER_ARGUMENTS
#endif
