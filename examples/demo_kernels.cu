// The kernels of the example notebook and of the tests. demo_kernels.ptx is made from this file:
//
//   nvcc --ptx --gpu-architecture=compute_75 --output-file demo_kernels.ptx demo_kernels.cu
//   sed -i 's/^\.version .*/.version 6.3/' demo_kernels.ptx
//
// Nothing here needs more than PTX 6.3, the first with compute_75, so that drivers older than the compiler load it too.
// A simulated GPU (native/simgpu) does not run the code: it knows these kernels by their names and parameters.

extern "C" __global__ void fill(float *y, float value, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = value;
}

extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

extern "C" __global__ void add(const float *x, const float *y, float *z, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        z[i] = x[i] + y[i];
}

extern "C" __global__ void scale(float a, float *x, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = a * x[i];
}

// Keeps the device busy by its wall clock, which runs on while another process has its turn: no test of sharing on hardware.
extern "C" __global__ void spin(unsigned microseconds)
{
    unsigned long long now, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    end = now + 1000ull * microseconds;
    while (now < end)
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
}
