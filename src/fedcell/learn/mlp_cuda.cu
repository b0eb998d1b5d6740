// The paper's MLP on a GPU: one client a thread block, its first layer's weights in shared memory for the whole job.
//
// Defined before this text: PIXEL (the type of an input), INPUTS, CLASSES (at most 16), BATCH (at most 10).
//
// The inputs are sparse, so a step first needs the list of inputs that are nonzero in its batch. All lists of all steps
// are written beforehand by `lay_out`, as rows of 12 floats: the input's value in each of the 10 samples, and where its
// 64 weights begin. `train` reads them in order, twice a step, from the caches.
//
// As in mlp_kernel.py, the constant part of standardised inputs, x - c, is kept out of the weights: the true weights are
// W_p + v with v = -c G, G the sum of all steps of the first layer's biases, and with R = sum_p W_p, S = sum_p x_p
//
//     z = sum_p x_p W_p + (S - c P) v + (b + G - c R),        R += S g with every step.

#define UNITS 64
#define SAMPLES 10
#define ROW 12
#define THREADS 256
#define WARPS 8
#define SLICES 32
#define TILE 65
#define ALL 0xffffffffu

#ifndef SHARED
#define SHARED(name) extern __shared__ __align__(16) float name[]
#endif

struct __align__(4 * sizeof(PIXEL)) Four {
    PIXEL at[4];
};

// Four neighbouring inputs of a sample, the first of them a multiple of four.
__device__ inline Four load_four(const PIXEL* sample, int p) {
    Four found = {{0, 0, 0, 0}};
    if (INPUTS % 4 == 0 && p < INPUTS) return *(const Four*)(sample + p);
    for (int i = 0; i < 4; i++)
        if (p + i < INPUTS) found.at[i] = sample[p + i];
    return found;
}

// One block a step: for each input that is not zero in all samples of the batch, a row; and how many there are.
extern "C" __global__ void __launch_bounds__(THREADS)
lay_out(const PIXEL* inputs, const int* order, double factor, int steps, float* table, int* counts) {
    __shared__ int totals[WARPS];
    const long step = blockIdx.x;
    float4* rows = (float4*)(table + step * INPUTS * ROW);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int before = 0;
    for (int first = 0; first < INPUTS; first += 4 * THREADS) {
        const int p = first + 4 * threadIdx.x;
        Four x[SAMPLES];
#pragma unroll
        for (int s = 0; s < SAMPLES; s++) {
            const int id = order[step * SAMPLES + s];
            const Four none = {{0, 0, 0, 0}};
            x[s] = id >= 0 && p < INPUTS ? load_four(inputs + (long)id * INPUTS, p) : none;
        }
        unsigned votes[4];
        int sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool held = false;
#pragma unroll
            for (int s = 0; s < SAMPLES; s++) held |= x[s].at[i] != 0;
            votes[i] = __ballot_sync(ALL, held);
            sum += __popc(votes[i]);
        }
        if (lane == 0) totals[warp] = sum;
        __syncthreads();
        int base = before;
        for (int w = 0; w < WARPS; w++) {
            if (w < warp) base += totals[w];
            before += totals[w];
        }
        __syncthreads();
        const float f = (float)factor;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (votes[i] >> lane & 1) {
                float4* row = rows + 3 * (base + __popc(votes[i] & ((1u << lane) - 1)));
                row[0] = make_float4(f * x[0].at[i], f * x[1].at[i], f * x[2].at[i], f * x[3].at[i]);
                row[1] = make_float4(f * x[4].at[i], f * x[5].at[i], f * x[6].at[i], f * x[7].at[i]);
                row[2] = make_float4(f * x[8].at[i], f * x[9].at[i], __int_as_float((p + i) * UNITS), 0.0f);
            }
            base += __popc(votes[i]);
        }
    }
    if (threadIdx.x == 0) counts[step] = before;
}

struct Row {
    float4 a, b, c;
};

__device__ inline Row load_row(const float4* rows, int k) {
    Row row = {rows[3 * k], rows[3 * k + 1], rows[3 * k + 2]};
    return row;
}

// The first three rows of a slice, as far as there are so many.
__device__ inline void look_ahead(const float4* rows, int slice, int count, Row& a, Row& b, Row& c) {
    if (slice < count) a = load_row(rows, slice);
    if (slice + SLICES < count) b = load_row(rows, slice + SLICES);
    if (slice + 2 * SLICES < count) c = load_row(rows, slice + 2 * SLICES);
}

__device__ inline void values(const Row& row, float* x) {
    x[0] = row.a.x; x[1] = row.a.y; x[2] = row.a.z; x[3] = row.a.w;
    x[4] = row.b.x; x[5] = row.b.y; x[6] = row.b.z; x[7] = row.b.w;
    x[8] = row.c.x; x[9] = row.c.y;
}

__device__ inline void take8(const float* from, float* w) {
    const float4 a = *(const float4*)from, b = *(const float4*)(from + 32);
    w[0] = a.x; w[1] = a.y; w[2] = a.z; w[3] = a.w;
    w[4] = b.x; w[5] = b.y; w[6] = b.z; w[7] = b.w;
}

__device__ inline void put8(float* to, const float* w) {
    *(float4*)to = make_float4(w[0], w[1], w[2], w[3]);
    *(float4*)(to + 32) = make_float4(w[4], w[5], w[6], w[7]);
}

__device__ inline void add_forward(const Row& row, const float* weights, float (*acc)[8]) {
    float x[SAMPLES], w[8];
    values(row, x);
    take8(weights + __float_as_int(row.c.z), w);
#pragma unroll
    for (int s = 0; s < SAMPLES; s++)
#pragma unroll
        for (int i = 0; i < 8; i++) acc[s][i] += x[s] * w[i];
}

__device__ inline void add_steps(const Row& row, float* w, const float (*steps)[8]) {
    float x[SAMPLES];
    values(row, x);
#pragma unroll
    for (int s = 0; s < SAMPLES; s++)
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] += x[s] * steps[s][i];
}

// Weights between the model's order (unit by unit) and that of the shared memory (input by input), by tiles.
__device__ inline void transpose(float* model, float* weights, float* tile, bool pack, const float* v) {
    for (int first = 0; first < INPUTS; first += UNITS) {
        const int width = min(UNITS, INPUTS - first);
        for (int i = threadIdx.x; i < UNITS * UNITS; i += THREADS) {
            const int u = i / UNITS, q = i % UNITS;
            if (pack) {
                if (u < width) tile[q * TILE + u] = weights[(first + u) * UNITS + q] + v[q];
            } else if (q < width) tile[u * TILE + q] = model[u * INPUTS + first + q];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < UNITS * UNITS; i += THREADS) {
            const int u = i / UNITS, q = i % UNITS;
            if (pack) {
                if (q < width) model[u * INPUTS + first + q] = tile[u * TILE + q];
            } else if (u < width) weights[(first + u) * UNITS + q] = tile[q * TILE + u];
        }
        __syncthreads();
    }
}

// One block a job: `steps` batches from the model in `models`, which is replaced by the trained one. `losses` gets the
// sum of the samples' losses and of their squares.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
train(float* models, const float* table, const int* counts, const int* order, const int* labels, const float* sums,
      const float* rates, const int* lengths, const float* sizes, double center, int steps, double* losses) {
    SHARED(shared);
    float* weights = shared;                       // (INPUTS, UNITS)
    float* parts = weights + INPUTS * UNITS;       // (WARPS, SAMPLES, UNITS); tiles before and after
    float* hidden = parts + WARPS * SAMPLES * UNITS;  // (SAMPLES, UNITS)
    float* steps1 = hidden + SAMPLES * UNITS;      // (SAMPLES, UNITS), steps of the first layer
    float* upper = steps1 + SAMPLES * UNITS;       // (CLASSES, UNITS), weights of the second layer
    float* steps2 = upper + CLASSES * UNITS;       // (SAMPLES, 16), steps of the second layer
    float* bias2 = steps2 + SAMPLES * 16;          // (16)
    float* v = bias2 + 16;                         // (UNITS)
    float* bias1 = v + UNITS;                      // (UNITS)
    float* input_sums = bias1 + UNITS;             // (16)
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int slice = t / 8, group = t % 8;        // rows slice, slice + 32, ...; units 4 group + (0..3) and 32 more
    const long size = (long)INPUTS * UNITS + UNITS + CLASSES * UNITS + CLASSES;
    float* model = models + blockIdx.x * size;
    const float* tail = model + INPUTS * UNITS;
    const int length = lengths[blockIdx.x];
    const float rate = rates[blockIdx.x];
    transpose(model, weights, parts, false, 0);
    for (int i = t; i < CLASSES * UNITS; i += THREADS) upper[i] = tail[UNITS + i];
    if (t < 16) bias2[t] = t < CLASSES ? tail[UNITS + CLASSES * UNITS + t] : 0.0f;
    const int unit = t - (THREADS - UNITS);        // the last two warps also keep the constants, a unit a thread
    double moved = 0.0, total = 0.0, start = 0.0, loss = 0.0, square = 0.0;
    if (unit >= 0) {
        for (int p = 0; p < INPUTS; p++) total += weights[p * UNITS + unit];
        start = tail[unit];
        v[unit] = 0.0f;
        bias1[unit] = (float)(start - center * total);
    }
    __syncthreads();
    // What a step reads from the device's memory is asked for a step ahead: how many rows, the first two of them, and the
    // sample of this half-warp with its label and sum.
    const long begin = (long)blockIdx.x * steps;
    const float4* rows = (const float4*)(table + begin * INPUTS * ROW);
    int count = length ? counts[begin] : 0;
    Row a, b, c;
    look_ahead(rows, slice, count, a, b, c);
    const int sample = 2 * warp + lane / 16;
    int id = warp < SAMPLES / 2 && length ? order[begin * SAMPLES + sample] : -1;
    int label = id >= 0 ? labels[id] : -1;
    float input_sum = id >= 0 ? sums[id] : 0.0f;
    for (int step = 0; step < length; step++) {
        const bool more = step + 1 < length;
        const int next_count = more ? counts[begin + step + 1] : 0;
        const float size_now = sizes[begin + step];
        const int next_id = more && warp < SAMPLES / 2 ? order[(begin + step + 1) * SAMPLES + sample] : -1;
        // Forward: each slice sums its rows for 10 samples x 8 units.
        float acc[SAMPLES][8];
#pragma unroll
        for (int s = 0; s < SAMPLES; s++)
#pragma unroll
            for (int i = 0; i < 8; i++) acc[s][i] = 0.0f;
        {
            const float* mine = weights + 4 * group;
            int k = slice;
            for (; k + 2 * SLICES < count; k += 3 * SLICES) {  // each row is asked for two rows before it is needed
                add_forward(a, mine, acc);
                if (k + 3 * SLICES < count) a = load_row(rows, k + 3 * SLICES);
                add_forward(b, mine, acc);
                if (k + 4 * SLICES < count) b = load_row(rows, k + 4 * SLICES);
                add_forward(c, mine, acc);
                if (k + 5 * SLICES < count) c = load_row(rows, k + 5 * SLICES);
            }
            if (k < count) add_forward(a, mine, acc);
            if (k + SLICES < count) add_forward(b, mine, acc);
        }
        // The four slices of a warp: after two exchanges each lane has the sums of 5 samples x 4 units.
        const bool late = lane & 16, right = lane & 8;
        float five[5][8], part[5][4];
#pragma unroll
        for (int s = 0; s < 5; s++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                five[s][i] = (late ? acc[s + 5][i] : acc[s][i]) + __shfl_xor_sync(ALL, late ? acc[s][i] : acc[s + 5][i], 16);
#pragma unroll
        for (int s = 0; s < 5; s++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                part[s][i] = (right ? five[s][i + 4] : five[s][i]) + __shfl_xor_sync(ALL, right ? five[s][i] : five[s][i + 4], 8);
        float* mine = parts + warp * SAMPLES * UNITS + (late ? 5 * UNITS : 0) + (right ? 32 : 0) + 4 * group;
#pragma unroll
        for (int s = 0; s < 5; s++)
            *(float4*)(mine + s * UNITS) = make_float4(part[s][0], part[s][1], part[s][2], part[s][3]);
        __syncthreads();
        // A half-warp a sample, four units a lane: hidden layer, logits, softmax, and the steps of both layers.
        if (warp < SAMPLES / 2) {
            const int s = sample, u = 4 * (lane % 16);
            const float extra = input_sum - (float)(center * INPUTS);
            if (lane % 16 == 0) input_sums[s] = input_sum;
            float z[4], d[CLASSES], w[CLASSES][4];
#pragma unroll
            for (int i = 0; i < 4; i++) z[i] = bias1[u + i] + extra * v[u + i];
#pragma unroll
            for (int k = 0; k < WARPS; k++) {
                const float4 sum = *(const float4*)(parts + (k * SAMPLES + s) * UNITS + u);
                z[0] += sum.x; z[1] += sum.y; z[2] += sum.z; z[3] += sum.w;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) z[i] = z[i] <= 0.0f ? 0.0f : z[i];  // a NaN stays one
            *(float4*)(hidden + s * UNITS + u) = make_float4(z[0], z[1], z[2], z[3]);
#pragma unroll
            for (int c = 0; c < CLASSES; c++) {
                const float4 a = *(const float4*)(upper + c * UNITS + u);
                w[c][0] = a.x; w[c][1] = a.y; w[c][2] = a.z; w[c][3] = a.w;
                d[c] = z[0] * a.x + z[1] * a.y + z[2] * a.z + z[3] * a.w;
            }
#pragma unroll
            for (int far = 8; far; far /= 2)
#pragma unroll
                for (int c = 0; c < CLASSES; c++) d[c] += __shfl_xor_sync(ALL, d[c], far);
            float high = -1e30f, sum = 0.0f, chosen = 0.0f;
#pragma unroll
            for (int c = 0; c < CLASSES; c++) {
                d[c] += bias2[c];
                high = d[c] <= high ? high : d[c];
                chosen = c == label ? d[c] : chosen;
            }
#pragma unroll
            for (int c = 0; c < CLASSES; c++) {
                d[c] = expf(d[c] - high);
                sum += d[c];
            }
            if (id >= 0) {
                const double one = (double)logf(sum) + high - chosen;
                loss += one;
                square += one * one;
            }
            const float scale = id >= 0 ? -rate / size_now : 0.0f, share = scale / sum;
            float g[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int c = 0; c < CLASSES; c++) {
                d[c] = share * d[c] - (c == label ? scale : 0.0f);
                if (lane % 16 == c) steps2[s * 16 + c] = d[c];
#pragma unroll
                for (int i = 0; i < 4; i++) g[i] += d[c] * w[c][i];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) g[i] = z[i] <= 0.0f ? 0.0f : g[i];
            *(float4*)(steps1 + s * UNITS + u) = make_float4(g[0], g[1], g[2], g[3]);
        }
#ifdef __CUDA_ARCH__
        else if (more) {  // the warps that have nothing to do fetch the next rows into the L2 cache
            const char* next = (const char*)(rows + 3 * INPUTS);
            const int bytes = next_count * ROW * 4;
            for (int at = 128 * (t - 32 * (SAMPLES / 2)); at < bytes; at += 128 * (THREADS - 32 * (SAMPLES / 2)))
                asm volatile("prefetch.global.L2 [%0];" ::"l"(next + at));
        }
#endif
        __syncthreads();
        // The update: second layer and constants by some threads, then each slice its rows of the first layer.
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
        if (unit >= 0) {
            float g = 0.0f, weighted = 0.0f;
#pragma unroll
            for (int s = 0; s < SAMPLES; s++) {
                const float one = steps1[s * UNITS + unit];
                g += one;
                weighted += one * input_sums[s];
            }
            moved += g;
            total += weighted;
            v[unit] = (float)(-center * moved);
            bias1[unit] = (float)(start + moved - center * total);
        }
#pragma unroll
        for (int s = 0; s < SAMPLES; s++) take8(steps1 + s * UNITS + 4 * group, acc[s]);
        const int next_label = next_id >= 0 ? labels[next_id] : -1;
        const float next_sum = next_id >= 0 ? sums[next_id] : 0.0f;
        {
            float* mine = weights + 4 * group;
            look_ahead(rows, slice, count, a, b, c);
            int k = slice;
            for (; k + SLICES < count; k += 2 * SLICES) {  // two rows at once: neither waits for the other's store
                float* here = mine + __float_as_int(a.c.z);
                float* there = mine + __float_as_int(b.c.z);
                float w[8], other[8];
                take8(here, w);
                take8(there, other);
                add_steps(a, w, acc);
                if (k + 2 * SLICES < count) a = load_row(rows, k + 2 * SLICES);
                add_steps(b, other, acc);
                if (k + 3 * SLICES < count) b = load_row(rows, k + 3 * SLICES);
                put8(here, w);
                put8(there, other);
            }
            if (k < count) {
                float* here = mine + __float_as_int(a.c.z);
                float w[8];
                take8(here, w);
                add_steps(a, w, acc);
                put8(here, w);
            }
        }
        rows += 3 * INPUTS;
        count = next_count;
        look_ahead(rows, slice, count, a, b, c);
        id = next_id;
        label = next_label;
        input_sum = next_sum;
        __syncthreads();
    }
    transpose(model, weights, parts, true, v);
    float* end = model + INPUTS * UNITS;
    if (unit >= 0) end[unit] = (float)(start + moved);
    for (int i = t; i < CLASSES * UNITS; i += THREADS) end[UNITS + i] = upper[i];
    if (t < CLASSES) end[UNITS + CLASSES * UNITS + t] = bias2[t];
    // The losses of the samples are with the first lane of each half-warp.
    double* collected = (double*)parts;
    if (warp < SAMPLES / 2 && lane % 16 == 0) {
        collected[2 * warp + lane / 16] = loss;
        collected[SAMPLES + 2 * warp + lane / 16] = square;
    }
    __syncthreads();
    if (t < 2) {
        double sum = 0.0;
        for (int s = 0; s < SAMPLES; s++) sum += collected[t * SAMPLES + s];
        losses[2 * blockIdx.x + t] = sum;
    }
}
