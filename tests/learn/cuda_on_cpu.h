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
#define SHARED(name) char* name = the_block.shared
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
struct float2 { float x, y; };
struct uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
struct Index { unsigned x; };
static Index blockIdx, threadIdx;
static int __float_as_int(float f) { int i; memcpy(&i, &f, 4); return i; }
static float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }

struct Block {
    char* shared;
    ucontext_t driver;
    std::vector<ucontext_t> threads;
    std::vector<bool> ended;
    std::function<void()> body;
    int arrived[48], turn[48], size;
    float given[1024];
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
// What all lanes of a warp give, for the lane that asks: words of its tensor cores' factors, or where rows begin.
struct Given {
    const void* row;
    unsigned words[6];
};
static Given* exchanged(const Given& own) {
    static Given all[1024];
    const unsigned t = threadIdx.x;
    meet(t / 32, 32);  // nobody reads what was given before
    all[t] = own;
    meet(t / 32, 32);
    return all + t / 32 * 32;
}
static unsigned __reduce_or_sync(unsigned, unsigned value) {
    const Given* all = exchanged(Given{0, {value}});
    unsigned found = 0;
    for (int i = 0; i < 32; i++) found |= all[i].words[0];
    return found;
}
static int __shfl_sync(unsigned, int value, int from) { return exchanged(Given{0, {(unsigned)value}})[from].words[0]; }
static float bf16(unsigned word, int i) { return __int_as_float(i ? word & 0xffff0000u : word << 16); }
static float tf32(unsigned word) { return __int_as_float(word & 0xffffe000u); }
static float factor_of(const Given* all, bool first, bool wide, int row, int k) {
    // Element k of a row of the first factor, or of a column of the second.
    const int half = wide ? 8 : 4, lane = row % 8 * 4 + (wide ? k % 8 / 2 : k % 4);
    const unsigned word = all[lane].words[first ? row / 8 + k / half * 2 : 4 + k / half];
    return wide ? bf16(word, k % 2) : tf32(word);
}
static void multiply_parts(float* d, const unsigned* a, const unsigned* b, bool wide) {
    const Given* all = exchanged(Given{0, {a[0], a[1], a[2], a[3], b[0], b[1]}});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        double sum = 0.0;
        for (int k = 0; k < (wide ? 16 : 8); k++)
            sum += (double)factor_of(all, true, wide, lane / 4 + i / 2 * 8, k) *
                   factor_of(all, false, wide, lane % 4 * 2 + i % 2, k);
        d[i] = (float)(d[i] + sum);
    }
}
static void multiply_bf16(float* d, const unsigned* a, const unsigned* b) { multiply_parts(d, a, b, true); }
static void multiply_tf32(float* d, const unsigned* a, const unsigned* b) { multiply_parts(d, a, b, false); }
static void load_some(unsigned* found, const char* row, bool across) {
    const Given* all = exchanged(Given{row, {}});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        unsigned short two[2];
        for (int e = 0; e < 2; e++) {
            const int one = lane / 4, other = lane % 4 * 2 + e, line = across ? other : one, at = across ? one : other;
            two[e] = ((const unsigned short*)all[8 * i + line].row)[at];
        }
        found[i] = two[0] | (unsigned)two[1] << 16;
    }
}
static void load_matrices(unsigned* found, const char* row) { load_some(found, row, false); }
static void load_transposed(unsigned* found, const char* row) { load_some(found, row, true); }
static unsigned transposed(unsigned pair) {
    const Given* all = exchanged(Given{0, {pair}});
    const int lane = threadIdx.x % 32, at = lane / 4;
    unsigned found = 0;
    for (int e = 0; e < 2; e++) {
        const unsigned word = all[(lane % 4 * 2 + e) * 4 + at / 2].words[0];
        found |= (word >> 16 * (at % 2) & 0xffffu) << 16 * e;
    }
    return found;
}
static unsigned __byte_perm(unsigned a, unsigned b, unsigned) { return a >> 16 | (b & 0xffff0000u); }  // as 0x7632 says
// Copies are done at once.
static void make_barrier(unsigned long long*) {}
static void expect(unsigned long long*, int) {}
static void await(unsigned long long*, int) {}
static void copy(char* to, const char* from, int bytes, unsigned long long*) { memcpy(to, from, bytes); }
static void enter() {
    the_block.body();
    the_block.ended[threadIdx.x] = true;
    pause();
}
static void launch(int blocks, int threads, int shared_bytes, std::function<void()> body) {
    const size_t stack = 1 << 16;
    the_block.body = body;
    the_block.size = threads;
    the_block.shared = (char*)aligned_alloc(128, (shared_bytes + 128) / 128 * 128);
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
