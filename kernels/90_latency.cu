// Idea: one thread follows a chain of pointers, each load's address being the last load's
//       result, and counts the cycles of a step: the latency of device memory, L2, L1 and
//       shared memory.
// Rings: rings of 8-byte pointers, STRIDE bytes apart. The one in device memory is larger than
//        L2, so that what the chain meets has been driven out by the time the ring was written;
//        the one in L2 is larger than L1.
// Result: latency[0..3] = cycles for a load from device memory, L2, L1 and shared memory.
// From: articles A (clock64) and B (claim B5). Loads from L2 by ld.global.cg, which passes L1
//       by.

#ifndef STRIDE
#define STRIDE 256
#endif
#ifndef STEPS
#define STEPS 4096
#endif
#ifndef L1_STEPS
#define L1_STEPS 64
#endif

constexpr int SHARED_NODES = 1024;

static_assert(STRIDE % 8 == 0, "a node is an aligned pointer");

// Node i points to node i + 1, the last to the first.
extern "C" __global__ void __launch_bounds__(256)
    link_ring(char* ring, int nodes) {
    const int node = blockIdx.x * 256 + threadIdx.x;
    if (node < nodes) {
        char* next = ring + static_cast<size_t>((node + 1) % nodes) * STRIDE;
        *reinterpret_cast<char**>(ring + static_cast<size_t>(node) * STRIDE) = next;
    }
}

struct PastL1 {
    __device__ static char* load(char* node) {
        return reinterpret_cast<char*>(__ldcg(reinterpret_cast<unsigned long long*>(node)));
    }
};
struct ThroughL1 {
    __device__ static char* load(char* node) {
        return reinterpret_cast<char*>(__ldca(reinterpret_cast<unsigned long long*>(node)));
    }
};

// Cycles for each of `steps` loads; the last pointer decides a branch so that no load can be
// left out.
template <typename Load>
__device__ float follow(char*& node, int steps) {
    const long long start = clock64();
    for (int step = 0; step < steps; ++step) {
        node = Load::load(node);
    }
    if (node == nullptr) {
        return 0.0f;
    }
    return static_cast<float>(clock64() - start) / steps;
}

extern "C" __global__ void __launch_bounds__(1)
    follow_rings(char* device_ring, char* l2_ring, char* l1_ring, float* latency) {
    __shared__ unsigned shared_ring[SHARED_NODES];

    latency[0] = follow<PastL1>(device_ring, STEPS);

    follow<PastL1>(l2_ring, STEPS);  // once round to bring it into L2
    latency[1] = follow<PastL1>(l2_ring, STEPS);

    follow<ThroughL1>(l1_ring, L1_STEPS);
    latency[2] = follow<ThroughL1>(l1_ring, L1_STEPS);

    for (int node = 0; node < SHARED_NODES; ++node) {
        shared_ring[node] = (node + 1) % SHARED_NODES;
    }
    unsigned node = 0;
    const long long start = clock64();
    for (int step = 0; step < STEPS; ++step) {
        node = shared_ring[node];
    }
    const long long cycles = clock64() - start;
    // The comparison never holds; it makes the chain's end count.
    latency[3] = node >= SHARED_NODES ? 0.0f : static_cast<float>(cycles) / STEPS;
}
