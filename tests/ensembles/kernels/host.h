// What `embedding.cu` needs of CUDA, for one thread of the processor.
#include <cmath>
#include <cstring>
#define __device__
#define __global__
#define __launch_bounds__(...)
struct float4 {
  float x, y, z, w;
};
struct Place {
  int x;
};
static inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
static inline void __syncthreads() {}
static inline void atomicAdd(float* at, float value) { *at += value; }
static Place threadIdx{0}, blockIdx{0}, gridDim{0};
