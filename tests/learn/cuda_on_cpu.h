// Runs a CUDA kernel on a CPU, one block after the other, for tests of its logic: each thread of a block is a coroutine
// that runs until it waits for others, at a barrier or a shuffle.
#include <ucontext.h>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <functional>
#include <vector>
using std::max;
using std::min;
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define SHARED(name) float* name = the_block.shared
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
struct Index { unsigned x; };
static Index blockIdx, threadIdx;
static int __popc(unsigned v) { return __builtin_popcount(v); }
static int __float_as_int(float f) { int i; memcpy(&i, &f, 4); return i; }
static float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }

struct Block {
    float* shared;
    ucontext_t driver;
    std::vector<ucontext_t> threads;
    std::vector<bool> ended;
    std::function<void()> body;
    int arrived[48], turn[48], size;
    float given[1024];
    bool vote[1024];
};
static Block the_block;

static void pause() {
    const unsigned t = threadIdx.x;
    swapcontext(&the_block.threads[t], &the_block.driver);
    threadIdx.x = t;
}
static void meet(int where, int count) {  // of the warp `where`, or of all (32)
    const int turn = the_block.turn[where];
    if (++the_block.arrived[where] == count) {
        the_block.arrived[where] = 0;
        the_block.turn[where]++;
    }
    while (the_block.turn[where] == turn) pause();
}
static void __syncthreads() { meet(32, the_block.size); }
static void __barrier_sync_count(int id, int count) { meet(32 + id, count); }
static void __syncwarp() { meet(threadIdx.x / 32, 32); }
static float __shfl_xor_sync(unsigned, float value, int far) {
    const unsigned t = threadIdx.x;
    the_block.given[t] = value;
    meet(t / 32, 32);
    const float found = the_block.given[t ^ far];
    meet(t / 32, 32);
    return found;
}
static int __shfl_sync(unsigned, int value, int from) {
    const unsigned t = threadIdx.x;
    the_block.given[t] = __int_as_float(value);
    meet(t / 32, 32);
    const int found = __float_as_int(the_block.given[t / 32 * 32 + from]);
    meet(t / 32, 32);
    return found;
}
static unsigned __ballot_sync(unsigned, bool value) {
    const unsigned t = threadIdx.x;
    the_block.vote[t] = value;
    meet(t / 32, 32);
    unsigned found = 0;
    for (int i = 0; i < 32; i++) found |= (unsigned)the_block.vote[t / 32 * 32 + i] << i;
    meet(t / 32, 32);
    return found;
}
static bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
static void enter() {
    the_block.body();
    the_block.ended[threadIdx.x] = true;
    pause();
}
static void launch(int blocks, int threads, int shared_bytes, std::function<void()> body) {
    const size_t stack = 1 << 16;
    the_block.body = body;
    the_block.size = threads;
    the_block.shared = (float*)aligned_alloc(64, (shared_bytes + 64) / 64 * 64);
    std::vector<char> stacks(stack * threads);
    for (blockIdx.x = 0; blockIdx.x < (unsigned)blocks; blockIdx.x++) {
        memset(the_block.arrived, 0, sizeof the_block.arrived);
        memset(the_block.turn, 0, sizeof the_block.turn);
        memset(the_block.shared, 0xff, shared_bytes);  // NaNs: nothing may be read that was not written
        the_block.threads.assign(threads, ucontext_t());
        the_block.ended.assign(threads, false);
        for (int t = 0; t < threads; t++) {
            getcontext(&the_block.threads[t]);
            the_block.threads[t].uc_stack.ss_sp = &stacks[stack * t];
            the_block.threads[t].uc_stack.ss_size = stack;
            makecontext(&the_block.threads[t], enter, 0);
        }
        for (bool more = true; more;) {
            more = false;
            for (int t = 0; t < threads; t++)
                if (!the_block.ended[t]) {
                    more = true;
                    threadIdx.x = t;
                    swapcontext(&the_block.driver, &the_block.threads[t]);
                }
        }
    }
    free(the_block.shared);
}
