// Lets NVRTC compile the ladder's OpenCL C as CUDA C++: prepended to a rung, it defines OpenCL's words.
// It defines only what the ladder uses, and needs none of CUDA's headers.
//   OpenCL: work-group, work-item, local memory     CUDA: thread block, thread, shared memory
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 8.

__device__ inline int get_local_id(int d) { return d == 0 ? threadIdx.x : threadIdx.y; }
__device__ inline int get_group_id(int d) { return d == 0 ? blockIdx.x : blockIdx.y; }
__device__ inline int get_global_id(int d) {
  return d == 0 ? blockIdx.x * blockDim.x + threadIdx.x : blockIdx.y * blockDim.y + threadIdx.y;
}

// OpenCL's vectors, since CUDA's have neither arithmetic nor eight components.
template <int WIDTH_>
struct alignas(4 * WIDTH_) Vector {
  float s[WIDTH_];
  Vector() = default;
  __device__ explicit Vector(float x) {
    for (int i = 0; i < WIDTH_; i++) s[i] = x;
  }
  __device__ void operator+=(const Vector& v) {
    for (int i = 0; i < WIDTH_; i++) s[i] += v.s[i];
  }
  friend __device__ Vector operator*(Vector v, float x) {
    for (int i = 0; i < WIDTH_; i++) v.s[i] *= x;
    return v;
  }
};

// Rung 8's loads and shuffles.
__device__ inline float read_only(const float* p) { return __ldg(p); }
__device__ inline Vector<2> read_only(const Vector<2>* p) {
  union { float2 cuda; Vector<2> ours; } v = {__ldg((const float2*)p)};
  return v.ours;
}
__device__ inline Vector<4> read_only(const Vector<4>* p) {
  union { float4 cuda; Vector<4> ours; } v = {__ldg((const float4*)p)};
  return v.ours;
}
__device__ inline float shuffle(float value, int lane) { return __shfl_sync(0xffffffff, value, lane); }

#define float2 Vector<2>
#define float4 Vector<4>
#define float8 Vector<8>

#define __kernel extern "C" __global__
#define reqd_work_group_size(x, y, z) launch_bounds((x) * (y) * (z))  // both are written in __attribute__
#define __global
#define __local __shared__
#define restrict __restrict__
#define inline __device__ inline
#define barrier(fence) __syncthreads()
