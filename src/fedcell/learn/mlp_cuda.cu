// The paper's MLP on a GPU: one client a thread block, its first layer's weights in shared memory for the whole job.
//
// Defined before this text: PIXEL (the type of an input), HALVES (whether that is the upper half of a float, as it is for
// pixels; bytes have no more), INPUTS (at most 1023), CLASSES (at most 16). The data set ends with a sample of zeros that has
// no label, `none`, for batches that are short.
//
// A pass over the weights takes the step of one batch and then the products with the next batch: each weight is read and
// written once a step. The inputs are sparse, so a pass goes over a list of the inputs that are nonzero in one of its two
// batches: first those that only the batch before needs, last those that only the batch to come needs. Eight warps train.
// Four more, with few registers, are two steps ahead: they write the lists, and transpose the batches into tables that
// have the values of an input in all 10 samples side by side. Lists and tables go round in four slots in device memory, which
// the L2 cache holds.
//
// Tables hold inputs as they are in the data set; `factor` times that is what the network sees. As in mlp_kernel.py, the
// constant part of standardised inputs, x - c, is kept out of the weights: the true weights are W_p + v with v = -c G, G
// the sum of all steps of the first layer's biases, and with R = sum_p W_p, S = sum_p x_p
//
//     z = sum_p x_p W_p + (S - c P) v + (b + G - c R),        R += S g with every step.

#define UNITS 64
#define SAMPLES 10
#define THREADS 256                                  // that train
#define WARPS 8
#define HELPERS 128                                  // threads that prepare batches
#define SLOTS 4
#define SLICES 32
#define ROWS (INPUTS + 1)                            // of a table; the last is for the end of a list, and zero
#define LIST ((INPUTS + 3 * SLICES - 1) / SLICES * SLICES)  // a pass looks two rounds ahead
#define VALUES (HALVES ? 5 : 10)                     // words of a row: the last one or two lie behind all others
#define TABLE ((ROWS * VALUES + 3) / 4 * 4)          // words of a table, with
#define SLOT (TABLE + LIST / 2)                      // the list of its pass
#define WORDS ((INPUTS + 31) / 32)                   // of a sample's mask
#define TILE 65
#define ALL 0xffffffffu

#ifndef SHARED
#define SHARED(name) extern __shared__ __align__(16) float name[]
#endif

// A job: its samples begin at `begin` of all jobs' (one epoch after the other, `samples` each), it has `length` steps,
// starts from the model `start` and becomes the model `row`.
struct Job {
    long long begin;
    int samples, length, start, row;
    float rate;
    int unused;
};

// What the warps that train have to know of batches, in shared memory.
struct Plan {
    Job job;
    int labels[SLOTS][16];    // of the samples, -1 where there are fewer
    float sums[SLOTS][16];    // of their inputs
    float scales[SLOTS];      // -rate / size
    int rounds[SLOTS];        // of SLICES rows each, in the pass to this batch
    int alone[SLOTS], updates[SLOTS];  // rounds at its beginning that need only the batch before, that need it at all
};

// Two neighbouring inputs of a sample.
struct Two {
#if HALVES
    unsigned both;
#else
    float at[2];
#endif
};

__device__ inline Two load_two(const PIXEL* sample, int p) {
    Two found;
#if HALVES
    if (INPUTS % 2 == 0) found.both = *(const unsigned*)(sample + p);
    else found.both = sample[p] | (p + 1 < INPUTS ? (unsigned)sample[p + 1] << 16 : 0);
#else
    found.at[0] = sample[p];
    found.at[1] = p + 1 < INPUTS ? sample[p + 1] : 0.0f;
#endif
    return found;
}

// Row p of a table.
struct Row {
    unsigned words[VALUES];
};

// The addresses are written out: the compiler makes many times as many instructions of the same in C.
__device__ inline void load_row(const unsigned* table, int p, Row& row) {
#if defined(__CUDA_ARCH__) && HALVES
    const char *fours = (const char*)table + 16u * p, *rest = (const char*)table + 4u * p;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(row.words[0]), "=r"(row.words[1]), "=r"(row.words[2]), "=r"(row.words[3]) : "l"(fours));
    asm volatile("ld.global.u32 %0, [%1 + %2];" : "=r"(row.words[4]) : "l"(rest), "n"(16 * ROWS));
#else
    const unsigned* rest = table + VALUES / 4 * 4 * ROWS + p * (VALUES % 4);
    for (int i = 0; i < VALUES; i++)
        row.words[i] = i < VALUES / 4 * 4 ? table[4 * (i / 4 * ROWS + p) + i % 4] : rest[i % 4];
#endif
}

// An input of a list.
__device__ inline int load_input(const unsigned short* list, int k) {
#ifdef __CUDA_ARCH__
    unsigned long long at;
    int found;
    asm("mad.wide.s32 %0, %1, 2, %2;" : "=l"(at) : "r"(k), "l"(list));
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(found) : "l"(at));
    return found;
#else
    return list[k];
#endif
}

__device__ inline void store_row(unsigned* table, int p, const Row& row) {
    uint4* fours = (uint4*)table;
    unsigned* rest = table + VALUES / 4 * 4 * ROWS;
#pragma unroll
    for (int i = 0; i < VALUES / 4; i++)
        fours[i * ROWS + p] =
            make_uint4(row.words[4 * i], row.words[4 * i + 1], row.words[4 * i + 2], row.words[4 * i + 3]);
#pragma unroll
    for (int i = VALUES / 4 * 4; i < VALUES; i++) rest[p * (VALUES % 4) + i % 4] = row.words[i];
}

__device__ inline float value(const Row& row, int s) {
    return __int_as_float(!HALVES ? row.words[s] : s % 2 ? row.words[s / 2] & 0xffff0000u : row.words[s / 2] << 16);
}

// Write two inputs of all samples.
__device__ inline void store_two(unsigned* table, int p, const Two* x) {
    Row row[2];
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
#if HALVES
        row[0].words[i] = (x[2 * i].both & 0xffffu) | x[2 * i + 1].both << 16;
        row[1].words[i] = x[2 * i].both >> 16 | (x[2 * i + 1].both & 0xffff0000u);
#else
        row[0].words[i] = __float_as_int(x[i].at[0]);
        row[1].words[i] = __float_as_int(x[i].at[1]);
#endif
    }
    if (p < INPUTS) store_row(table, p, row[0]);
    if (p + 1 < INPUTS) store_row(table, p + 1, row[1]);
}

// Write the list of a pass between two batches whose masks have 32 inputs a lane, by warps that share the words.
__device__ inline void write_list(unsigned before, unsigned to_come, int lane, int warp, unsigned short* list, Plan* plan,
                                  int slot) {
    // Three kinds, needed by the batch before, by both, by the batch to come: 10 bits of a sum each.
    const int own = __popc(before & ~to_come) | __popc(before & to_come) << 10 | __popc(to_come & ~before) << 20;
    int sum = own;
#pragma unroll
    for (int far = 1; far < 32; far *= 2) {
        const int other = __shfl_sync(ALL, sum, (lane - far) & 31);
        if (lane >= far) sum += other;
    }
    const int total = __shfl_sync(ALL, sum, 31), alone = total & 1023, updates = alone + (total >> 10 & 1023);
    const int count = updates + (total >> 20), rounds = (count + SLICES - 1) / SLICES;
    const int first = sum - own + (alone << 10) + (updates << 20);  // where this lane's inputs of each kind begin
    for (int word = warp; word < WORDS; word += HELPERS / 32) {
        const unsigned a = __shfl_sync(ALL, (int)before, word), b = __shfl_sync(ALL, (int)to_come, word);
        const unsigned to = __shfl_sync(ALL, first, word), bit = 1u << lane;
        const unsigned same = (a & bit ? a : ~a) & (b & bit ? b : ~b);  // of this kind
        const int kind = a & bit ? (b & bit ? 1 : 0) : 2;
        if ((a | b) & bit) list[(to >> 10 * kind & 1023) + __popc(same & (bit - 1))] = 32 * word + lane;
    }
    if (warp == 2) {
        for (int k = count + lane; k < (rounds + 2) * SLICES; k += 32) list[k] = INPUTS;
        plan->rounds[slot] = rounds;
        plan->alone[slot] = alone / SLICES;
        plan->updates[slot] = (updates + SLICES - 1) / SLICES;
    }
}

// The samples of the data set: inputs, masks with a bit for each input that is not zero, labels, sums of inputs.
struct Data {
    const PIXEL* inputs;
    const unsigned* masks;
    const int* labels;
    const float* sums;
};

// The warps that prepare batches, each two steps before it is needed.
struct Helper {
    const long long* next;    // samples from here on
    int left;                 // in this epoch
    unsigned mask;            // of the last batch

    __device__ inline void prepare(const Data& data, int batch, int none, int step, int t, unsigned* slots, Plan* plan) {
        const int lane = t % 32, warp = t / 32, slot = step % SLOTS;
        const int size = step < plan->job.length ? min(batch, left) : 0;
        const int id = lane < size ? (int)next[lane] : none;
        next += size;
        left = left > size ? left - size : plan->job.samples;
        if (warp == 1 && lane < 16) {
            plan->labels[slot][lane] = data.labels[id];
            plan->sums[slot][lane] = data.sums[id];
            if (lane == 0) plan->scales[slot] = size ? -plan->job.rate / size : 0.0f;
        }
        unsigned found = 0;
#pragma unroll
        for (int s = 0; s < SAMPLES; s++)
            found |= data.masks[(long)__shfl_sync(ALL, id, s) * WORDS + min(lane, WORDS - 1)];
        found = lane < WORDS ? found : 0;
        unsigned* table = slots + slot * SLOT;
        write_list(mask, found, lane, warp, (unsigned short*)(table + TABLE), plan, slot);
        mask = found;
#pragma unroll 1
        for (int first = 64 * (3 - warp); first < INPUTS; first += 2 * HELPERS) {  // the last warp has the rest
            const int p = first + 2 * lane;
            Two x[SAMPLES];
#pragma unroll
            for (int s = 0; s < SAMPLES; s++)
                x[s] = load_two(data.inputs + (long)__shfl_sync(ALL, id, s) * INPUTS, min(p, (INPUTS - 1) / 2 * 2));
            store_two(table, p, x);
        }
    }
};

// A place in shared memory, in bytes.
#ifdef __CUDA_ARCH__
typedef unsigned Place;
__device__ inline Place place_of(float* at) { return (unsigned)__cvta_generic_to_shared(at); }
#else
typedef char* Place;
inline Place place_of(float* at) { return (char*)at; }
#endif

__device__ inline void take4(Place from, float* w) {
#ifdef __CUDA_ARCH__
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(w[0]), "=f"(w[1]), "=f"(w[2]), "=f"(w[3]) : "r"(from) : "memory");
#else
    memcpy(w, from, 16);
#endif
}

// One store: the compiler would make four of it, whose banks collide.
__device__ inline void put4(Place to, const float* w) {
#ifdef __CUDA_ARCH__
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(w[0]), "f"(w[1]), "f"(w[2]), "f"(w[3])
                 : "memory");
#else
    memcpy(to, w, 16);
#endif
}

// Where a thread is at the beginning of a pass: its first two inputs, and the first row of either batch.
struct Begin {
    int p, next;
    Row old, young;
};

__device__ inline void look_up(const unsigned* table, int slice, Begin& begin) {
    const unsigned short* list = (const unsigned short*)(table + TABLE) + slice;
    begin.p = load_input(list, 0);
    begin.next = load_input(list, SLICES);
}

// A pass over this slice's inputs: w += x g for the batch before, then acc += x w for the batch to come. `near` and `far`
// are where the thread's units begin, four in each half of the 64. Rows and weights are asked for one row before they are
// needed, inputs two.
__device__ inline void pass_over(const Plan* plan, int slot, const unsigned* before, const unsigned* to_come, int slice,
                                 const Begin& begin, Place near, Place far, const float (*steps)[8], float (*acc)[8]) {
    const int rounds = plan->rounds[slot], alone = plan->alone[slot], updates = plan->updates[slot];
    if (rounds == 0) return;
    const unsigned short* list = (const unsigned short*)(to_come + TABLE) + slice;
    Row old[2], young[2];
    old[0] = begin.old;
    young[0] = begin.young;
    int next = begin.next;
    float w[2][8];
    Place here[2][2];
    here[0][0] = near + begin.p * (4 * UNITS);
    here[0][1] = far + begin.p * (4 * UNITS);
    take4(here[0][0], w[0]);
    take4(here[0][1], w[0] + 4);
    for (int i = 0; __any_sync(ALL, i < rounds);) {
#pragma unroll
        for (int q = 0; q < 2; q++) {
            here[1 - q][0] = near + next * (4 * UNITS);
            here[1 - q][1] = far + next * (4 * UNITS);
            take4(here[1 - q][0], w[1 - q]);
            take4(here[1 - q][1], w[1 - q] + 4);
            // A sign bit, which is zero, makes the next load wait for this row: a wait for one load is a wait for all.
            const int none = HALVES ? (int)young[q].words[0] >> 31 : 0;
            load_row(before, next + none, old[1 - q]);
            load_row(to_come, next + none, young[1 - q]);
            next = load_input(list, (i + 2) * SLICES + none);
            if (__any_sync(ALL, i < updates)) {
#pragma unroll
                for (int s = 0; s < SAMPLES; s++)
#pragma unroll
                    for (int u = 0; u < 8; u++) w[q][u] += value(old[q], s) * steps[s][u];
                put4(here[q][0], w[q]);
                put4(here[q][1], w[q] + 4);
            }
            if (__any_sync(ALL, i >= alone)) {
#pragma unroll
                for (int s = 0; s < SAMPLES; s++)
#pragma unroll
                    for (int u = 0; u < 8; u++) acc[s][u] += value(young[q], s) * w[q][u];
            }
            if (__any_sync(ALL, ++i == rounds)) break;
        }
    }
}

// Weights between the model's order (unit by unit) and that of the shared memory (input by input), by tiles: to `model` if
// there is one, else from `start`.
__device__ inline void transpose(const float* start, float* model, float* weights, float* tile, const float* v) {
    const bool pack = model != 0;
    for (int first = 0; first < INPUTS; first += UNITS) {
        const int width = min(UNITS, INPUTS - first);
        for (int i = threadIdx.x; i < UNITS * UNITS; i += THREADS) {
            const int u = i / UNITS, q = i % UNITS;
            if (pack) {
                if (u < width) tile[q * TILE + u] = weights[(first + u) * UNITS + q] + v[q];
            } else if (q < width) tile[u * TILE + q] = start[u * INPUTS + first + q];
        }
        __barrier_sync_count(1, THREADS);
        for (int i = threadIdx.x; i < UNITS * UNITS; i += THREADS) {
            const int u = i / UNITS, q = i % UNITS;
            if (pack) {
                if (q < width) model[u * INPUTS + first + q] = tile[u * TILE + q];
            } else if (u < width) weights[(first + u) * UNITS + q] = tile[q * TILE + u];
        }
        __barrier_sync_count(1, THREADS);
    }
}

// The sums of a warp's four slices: after two exchanges each lane has those of 5 samples x 4 units. `to` is where.
__device__ inline void keep_half(const float (*acc)[8], float (*half)[4]) {
#pragma unroll
    for (int s = 0; s < SAMPLES; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) half[s][i] = acc[s][i] + __shfl_xor_sync(ALL, acc[s][i + 4], 8);
}

__device__ inline void store_quarter(const float (*half)[4], int lane, float* to) {
    const bool late = lane & 16;
    to += late ? 5 * UNITS : 0;
#pragma unroll
    for (int s = 0; s < 5; s++) {
        float part[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[i] = (late ? half[s + 5][i] : half[s][i]) + __shfl_xor_sync(ALL, late ? half[s][i] : half[s + 5][i], 16);
        *(float4*)(to + s * UNITS) = make_float4(part[0], part[1], part[2], part[3]);
    }
}

// Of 2 x FAR sums over lanes, each lane keeps half, with those of the lane FAR away added.
template <int FAR>
__device__ inline void exchange(int lane, float* d) {
    const bool upper = lane & FAR;
#pragma unroll
    for (int c = 0; c < FAR; c++)
        d[c] = (upper ? d[c + FAR] : d[c]) + __shfl_xor_sync(ALL, upper ? d[c] : d[c + FAR], FAR);
}

// Registers go from the warps that prepare batches to those that train.
#ifdef __CUDA_ARCH__
#define REGISTERS(change, count) asm volatile("setmaxnreg." change ".sync.aligned.u32 " #count ";")
#else
#define REGISTERS(change, count)
#endif

// One block a job. `slots` is room for SLOTS of them a block. `losses` gets the sum of the samples' losses and of their
// squares.
extern "C" __global__ void __launch_bounds__(THREADS + HELPERS, 1)
train(const float* starts, float* models, unsigned* all_slots, const PIXEL* inputs, const unsigned* masks,
      const int* labels, const float* sums, const long long* order, const Job* jobs, double factor, double inverse,
      double center, int batch, int none, double* losses) {
    SHARED(shared);
    float* weights = shared;                          // (INPUTS + 1, UNITS): the last row is for the end of a list
    float* parts = weights + ROWS * UNITS;            // (WARPS, SAMPLES, UNITS); tiles before and after
    float* hidden = parts + WARPS * SAMPLES * UNITS;  // (SAMPLES, UNITS)
    float* steps1 = hidden + SAMPLES * UNITS;         // (SAMPLES, UNITS), steps of the first layer, times factor
    float* steps2 = steps1 + SAMPLES * UNITS;         // (SAMPLES, 16), steps of the second layer
    float* input_sums = steps2 + SAMPLES * 16;        // (16)
    float* gaps = input_sums + 16;                    // (16) the largest logit minus the label's, and
    float* spreads = gaps + 16;                       // (16) the sum of exp(logit - the largest)
    float* v = spreads + 16;                          // (UNITS)
    float* bias1 = v + UNITS;                         // (UNITS)
    float* bias2 = bias1 + UNITS;                     // (16)
    float* upper = bias2 + 16;                        // (CLASSES, UNITS), weights of the second layer
    Plan* plan = (Plan*)(upper + CLASSES * UNITS);
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned* slots = all_slots + (long)blockIdx.x * SLOTS * SLOT;
    if (t == 0) plan->job = jobs[blockIdx.x];
    __syncthreads();
    const Job& job = plan->job;
    if (warp >= WARPS) {
        REGISTERS("dec", 56);
        const Data data = {inputs, masks, labels, sums};
        Helper helper = {order + job.begin, job.samples, 0};
        const Row zeros = {};
        if (t < THREADS + SLOTS) store_row(slots + (t - THREADS) * SLOT, INPUTS, zeros);
        helper.prepare(data, batch, none, 0, t - THREADS, slots, plan);
        helper.prepare(data, batch, none, 1, t - THREADS, slots, plan);
        __syncthreads();
        for (int step = 0; step < job.length; step++) {
            helper.prepare(data, batch, none, step + 2, t - THREADS, slots, plan);
            __syncthreads();
        }
        return;
    }
    REGISTERS("inc", 224);
    const int slice = t / 8, group = t % 8;           // rows slice, slice + 32, ...; units near + (0..3), far + (0..3)
    const int near = 4 * group + (lane & 8 ? 32 : 0), far = near ^ 32;
    const long size = (long)INPUTS * UNITS + UNITS + CLASSES * UNITS + CLASSES;
    const float* tail = starts + job.start * size + INPUTS * UNITS;
    transpose(starts + job.start * size, 0, weights, parts, 0);
    for (int i = t; i < UNITS; i += THREADS) weights[INPUTS * UNITS + i] = 0.0f;
    for (int i = t; i < 2 * SAMPLES * UNITS + SAMPLES * 16 + 32; i += THREADS) hidden[i] = 0.0f;  // no step before the first
    for (int i = t; i < CLASSES * UNITS; i += THREADS) upper[i] = tail[UNITS + i];
    if (t < 16) {
        bias2[t] = t < CLASSES ? tail[UNITS + CLASSES * UNITS + t] : 0.0f;
        spreads[t] = 1.0f;
    }
    const int unit = t - (THREADS - UNITS);           // the last two warps also keep the constants, a unit a thread
    double loss = 0.0, square = 0.0;                  // those of warp 5; of the last two warps:
    double &G = loss, &constant = square;             // b + G - c R
    if (unit >= 0) {
        double R = 0.0;
        for (int p = 0; p < INPUTS; p++) R += weights[p * UNITS + unit];
        constant = tail[unit] - center * R;
    }
    __syncthreads();
    Begin begin;
    look_up(slots, slice, begin);
    load_row(slots, begin.p, begin.young);
    begin.old = begin.young;                          // is not looked at
    for (int step = 0;; step++) {
        const unsigned *before = slots + (step + SLOTS - 1) % SLOTS * SLOT, *to_come = slots + step % SLOTS * SLOT;
        // The step of the batch before: second layer, losses and constants by some threads.
        if (t < 16 * CLASSES) {
            const int c = t / 16, u = 4 * (t % 16);
            float4 w = *(float4*)(upper + c * UNITS + u);
            float moved2 = 0.0f;
#pragma unroll
            for (int s = 0; s < SAMPLES; s++) {
                const float d = steps2[s * 16 + c];
                const float4 h = *(const float4*)(hidden + s * UNITS + u);
                w.x += d * h.x; w.y += d * h.y; w.z += d * h.z; w.w += d * h.w;
                moved2 += d;
            }
            *(float4*)(upper + c * UNITS + u) = w;
            if (u == 0) bias2[c] += moved2;
        }
        if (warp == 5 && lane < SAMPLES) {
            const double one = (double)logf(spreads[lane]) + gaps[lane];
            loss += one;
            square += one * one;
        }
        if (unit >= 0) {
            float g = 0.0f, weighted = 0.0f;
#pragma unroll
            for (int s = 0; s < SAMPLES; s++) {
                const float one = steps1[s * UNITS + unit];
                g += one;
                weighted += one * input_sums[s];
            }
            G += inverse * g;
            constant += inverse * g - center * (inverse * weighted);
            v[unit] = (float)(-center * G);
            bias1[unit] = (float)constant;
        }
        float acc[SAMPLES][8], steps[SAMPLES][8];
#pragma unroll
        for (int s = 0; s < SAMPLES; s++) {
            take4(place_of(steps1) + 4 * (s * UNITS + near), steps[s]);
            take4(place_of(steps1) + 4 * (s * UNITS + far), steps[s] + 4);
#pragma unroll
            for (int i = 0; i < 8; i++) acc[s][i] = 0.0f;
        }
        pass_over(plan, step % SLOTS, before, to_come, slice, begin, place_of(weights + near), place_of(weights + far), steps,
                  acc);
        if (step == job.length) break;
        const unsigned* coming = slots + (step + 1) % SLOTS * SLOT;
        look_up(coming, slice, begin);
        float half[SAMPLES][4];
        keep_half(acc, half);
        store_quarter(half, lane, parts + warp * SAMPLES * UNITS + near);
        __barrier_sync_count(1, THREADS);
        // A half-warp a sample, four units a lane: hidden layer, logits, softmax, and the steps of both layers.
        if (warp < SAMPLES / 2) {
            const int s = 2 * warp + lane / 16, part = lane % 16, u = 4 * part, label = plan->labels[step % SLOTS][s];
            const float input_sum = plan->sums[step % SLOTS][s], scale = label >= 0 ? plan->scales[step % SLOTS] : 0.0f;
            const float extra = input_sum - (float)(center * INPUTS), f = (float)factor;
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, z[4], w[CLASSES][4], d[16];
#pragma unroll
            for (int k = 0; k < WARPS; k++) {
                const float4 four = *(const float4*)(parts + (k * SAMPLES + s) * UNITS + u);
                sum[0] += four.x; sum[1] += four.y; sum[2] += four.z; sum[3] += four.w;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                z[i] = f * sum[i] + (bias1[u + i] + extra * v[u + i]);
                z[i] = z[i] <= 0.0f ? 0.0f : z[i];  // a NaN stays one
            }
            *(float4*)(hidden + s * UNITS + u) = make_float4(z[0], z[1], z[2], z[3]);
#pragma unroll
            for (int c = 0; c < CLASSES; c++) {
                const float4 a = *(const float4*)(upper + c * UNITS + u);
                w[c][0] = a.x; w[c][1] = a.y; w[c][2] = a.z; w[c][3] = a.w;
                d[c] = z[0] * a.x + z[1] * a.y + z[2] * a.z + z[3] * a.w;
            }
#pragma unroll
            for (int c = CLASSES; c < 16; c++) d[c] = 0.0f;
            exchange<8>(lane, d);  // lane c of the half-warp gets the logit of class c
            exchange<4>(lane, d);
            exchange<2>(lane, d);
            exchange<1>(lane, d);
            const float logit = part < CLASSES ? d[0] + bias2[part] : -1e30f;
            float high = logit;
#pragma unroll
            for (int far = 8; far; far /= 2) high = fmaxf(high, __shfl_xor_sync(ALL, high, far));
            const float one = part < CLASSES ? expf(logit - high) : 0.0f;
            float spread = one;
#pragma unroll
            for (int far = 8; far; far /= 2) spread += __shfl_xor_sync(ALL, spread, far);
            steps2[s * 16 + part] = scale / spread * one - (part == label ? scale : 0.0f);
            if (part == max(label, 0)) {
                input_sums[s] = input_sum;
                gaps[s] = label >= 0 ? high - logit : 0.0f;
                spreads[s] = label >= 0 ? spread : 1.0f;
            }
            __syncwarp();
            float g[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int c = 0; c < CLASSES; c++) {
                const float step2 = steps2[s * 16 + c];
#pragma unroll
                for (int i = 0; i < 4; i++) g[i] += step2 * w[c][i];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) g[i] = z[i] <= 0.0f ? 0.0f : f * g[i];
            *(float4*)(steps1 + s * UNITS + u) = make_float4(g[0], g[1], g[2], g[3]);
        }
        load_row(to_come, begin.p, begin.old);
        load_row(coming, begin.p, begin.young);
        __syncthreads();
    }
    __barrier_sync_count(1, THREADS);
    float* model = models + job.row * size;
    transpose(0, model, weights, parts, v);
    float* end = model + INPUTS * UNITS;
    if (unit >= 0) end[unit] = (float)(starts[job.start * size + INPUTS * UNITS + unit] + G);
    for (int i = t; i < CLASSES * UNITS; i += THREADS) end[UNITS + i] = upper[i];
    if (t < CLASSES) end[UNITS + CLASSES * UNITS + t] = bias2[t];
    double* collected = (double*)parts;               // the losses of the samples are with warp 5
    if (warp == 5 && lane < SAMPLES) {
        collected[lane] = loss;
        collected[SAMPLES + lane] = square;
    }
    __barrier_sync_count(1, THREADS);
    if (t < 2) {
        double sum = 0.0;
        for (int s = 0; s < SAMPLES; s++) sum += collected[t * SAMPLES + s];
        losses[2 * job.row + t] = sum;
    }
}
