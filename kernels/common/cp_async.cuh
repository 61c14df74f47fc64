// cp.async: global memory to shared memory without a stop in registers, finished later (sm_80
// and up).
#pragma once

// Starts copying one element, or writing a zero where `inside` is false; `global` must be a
// valid address.
__device__ __forceinline__ void cp_async4(float* shared, const float* global, bool inside) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int bytes = inside ? 4 : 0;  // what isn't read from global memory is filled with zeros
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address), "l"(global),
                 "r"(bytes)
                 : "memory");
}

// Closes the group of copies that this thread started since the last group.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most Pending groups of this thread are under way. Other threads' copies need a
// barrier besides.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
}
