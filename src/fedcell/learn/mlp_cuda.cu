// The paper's MLP on a GPU: one client a thread block, its first layer's weights in registers and shared memory throughout.
//
// Defined before this text: PARTS (how many bfloat16 add up to an input: 1 for pixels, 3 for floats), INPUTS, CLASSES (at most
// 16). The data set ends with a sample of zeros that has no label, `none`, for batches that are short.
//
// Twelve warps have the first layer: warps m, m + 4, m + 8 have 16 of the 64 units, and every third tile of 8 inputs. A warp's
// weights are the results of tensor cores, units x inputs. A pass over them takes the step of one batch, W += G X, and then
// the products with another, Y = X W: what a lane holds of W as a result is what it has to hold of W as a factor. Factors are
// exact: a step is three bfloat16, a weight two TF32 (but for 2^-22 of it), inputs are bfloat16 already. Tensor cores cut
// their sums off instead of rounding, so no sum there is long, and steps are added to the weights outside.
//
// Two times four more warps, each for 16 units, do all else, one and two batches behind: in turn k the twelve take the step of
// batch k - 2 and make the products with batch k; the first four go from the products of batch k - 1 to its step, the others
// change the second layer and the constants by batch k - 2. The products of batch k - 1 do not know of the step of batch
// k - 2, so it is added: X_{k-1} (X_{k-2}^T G_{k-2}), by way of the 10 x 10 products of the samples of neighbouring batches.
// A turn is as long as the longest of the three, and has one barrier for all.
//
// Inputs are in the order of how often they are not zero, `places` says where they are in a model. The last are seldom needed:
// a run of tiles whose inputs are zero in a batch is left out.
//
// `factor` times an input is what the network sees. As in mlp_kernel.py, the constant part of standardised inputs, x - c, is
// kept out of the weights: the true weights are W_p + v with v = -c G, G the sum of all steps of the first layer's biases,
// and with R = sum_p W_p, S = sum_p x_p
//
//     z = sum_p x_p W_p + (S - c P) v + (b + G - c R),        R += S g with every step.

#define UNITS 64
#define SAMPLES 10
#define WAYS 3                                       // a group's tiles are shared by so many warps
#define THREADS (WAYS * GROUPS * 32)                 // that make passes
#define HELPERS 128                                  // that go from products to steps, and as many that do all else
#define GROUPS 4                                     // of 16 units
#define SLOTS 4                                      // batches in shared memory
#define TILES ((INPUTS + 8 * WAYS - 1) / (8 * WAYS))  // of 8 inputs, of a warp,
#define STRIDE (16 * WAYS)                           // bytes apart
#define PLANE ((STRIDE * TILES + 31) / 32 * 32)      // bytes of a sample's inputs, of each part;
#define SAMPLE (PARTS * PLANE + 16)                  // then label, sum, runs that it needs. An odd number of 16 bytes,
#define SLOT (SAMPLES * SAMPLE)                      // so that the same inputs of 8 samples are in different banks
#define RUN 2                                        // tiles in shared memory that are worked on together,
#define LONG_RUN 5                                   // and in registers
#define MOST (PARTS == 1 ? 15 : 25)                  // wider samples leave less shared memory
#define KEPT (TILES < MOST ? TILES : MOST - (MOST - TILES % RUN) % RUN)  // tiles of a warp in registers; others are shared
#define HALF ((CLASSES + 1) / 2)
#define LINE 16                                      // words between rows of small matrices
#define ALL 0xffffffffu

#ifndef SHARED
#define SHARED(name) extern __shared__ __align__(128) char name[]
#endif

// A job: its samples begin at `begin` of all jobs' (one epoch after the other, `samples` each), it has `length` steps,
// starts from the model `start` and becomes the model `row`.
struct Job {
    long long begin;
    int samples, length, start, row;
    float rate;
    int unused;
};

// 16 units.
struct Group {
    double G[16], constant[16];        // b + G - c R
    float upper[16][LINE];             // weights of the second layer, a class a row
    float v[16], bias[16];
    float hidden[2][SAMPLES][LINE];    // by batch
    float steps2[SAMPLES][LINE];       // HALF classes, then from column 8 the others
    float steps1[SAMPLES][LINE];       // times factor
};

// Matrices of 16 x 8 lie as the lanes of a warp hold them.
struct Shared {
    Group groups[GROUPS];
    unsigned steps[2][GROUPS][2][32][4];      // of the first layer, by batch: two factors
    float products[2][WAYS * GROUPS][2][32][4];  // of a batch and weights, by batch and warp
    float alike[GROUPS][2][32][4];            // of the samples of a batch and of the batch before, a part of the inputs a warp
    float logits[GROUPS][SAMPLES][LINE];      // as steps2
    float rest[TILES - KEPT + (TILES == KEPT)][WAYS * GROUPS][32][4];  // tiles of weights that are not in registers
    double losses[SAMPLES], squares[SAMPLES];
    unsigned long long full[SLOTS];    // barriers: a batch is here, each warp's part
    float scales[SLOTS];               // -rate / size
    float gaps[SAMPLES], spreads[SAMPLES];  // the largest logit minus the label's, and the sum of exp(logit - the largest)
    float bias2[16];
    Job job;
};

#ifdef __CUDA_ARCH__

__device__ inline unsigned place_of(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// d += a b: 16 x 8, of 16 bfloat16 products each.
__device__ inline void multiply_bf16(float* d, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b: 16 x 8, of 8 TF32 products each.
__device__ inline void multiply_tf32(float* d, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16 bits; each lane says where a row begins.
__device__ inline void load_matrices(unsigned* found, const char* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3]) : "r"(place_of(row)));
}

__device__ inline void load_transposed(unsigned* found, const char* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3]) : "r"(place_of(row)));
}

__device__ inline unsigned transposed(unsigned pair) {
    unsigned found;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(found) : "r"(pair));
    return found;
}

__device__ inline void make_barrier(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(place_of(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void expect(unsigned long long* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place_of(barrier)), "r"(bytes) : "memory");
}

__device__ inline void copy(char* to, const char* from, int bytes, unsigned long long* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(place_of(to)), "l"(from), "r"(bytes), "r"(place_of(barrier)) : "memory");
}

__device__ inline void await(unsigned long long* barrier, int phase) {
    asm volatile("{\n.reg .pred there;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
                 "@!there bra again;\n}" ::"r"(place_of(barrier)), "r"(phase) : "memory");
}

#endif

__device__ inline unsigned bits(float x) { return (unsigned)__float_as_int(x); }
__device__ inline float cut(float x, unsigned mask) { return __int_as_float((int)(bits(x) & mask)); }

// x as two TF32: its first 11 bits, and the rest, of whose 13 bits products take 11.
__device__ inline void split(float x, unsigned& high, unsigned& low) {
    const float first = cut(x, 0xffffe000u);
    high = bits(first);
    low = bits(x - first);
}

// d += a b in TF32, but for the product of their lower parts.
__device__ inline void multiply(float* d, const float* a, float b0, float b1) {
    unsigned high[4], low[4], over[2], under[2];
#pragma unroll
    for (int i = 0; i < 4; i++) split(a[i], high[i], low[i]);
    split(b0, over[0], under[0]);
    split(b1, over[1], under[1]);
    multiply_tf32(d, low, over);
    multiply_tf32(d, high, under);
    multiply_tf32(d, high, over);
}

// A result as the first factor of the next product, whose terms then come in the order 0 2 4 6 1 3 5 7.
__device__ inline void as_factor(const float* d, float* a) {
    a[0] = d[0]; a[1] = d[2]; a[2] = d[1]; a[3] = d[3];
}

// A step of 16 units as factors of bfloat16: steps[n] is samples x units 8n..8n+7. It is the sum of three parts, whose 30
// samples fill two factors: 0-7 of the first and of the second; 0-7 of the third, then 8 and 9 of the first, second, third.
__device__ inline void split_steps(const float (*steps)[4], int lane, unsigned (*factors)[4]) {
    float rest[2][4];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) rest[n][i] = steps[n][i];
    factors[1][2] = factors[1][3] = 0u;
#pragma unroll
    for (int part = 0; part < 3; part++)
#pragma unroll
        for (int i = 0; i < 4; i++) {  // units 8(i % 2)..., samples 8(i / 2)...
            float* two = rest[i % 2] + i / 2 * 2;
            const unsigned found = transposed(__byte_perm(bits(two[0]), bits(two[1]), 0x7632));
            two[0] -= cut(two[0], 0xffff0000u);
            two[1] -= cut(two[1], 0xffff0000u);
            if (i < 2) factors[part / 2][i + part % 2 * 2] = found;
            else {
                const unsigned last = (unsigned)__shfl_sync(ALL, (int)found, lane & 28);
                if (lane % 4 == part) factors[1][i] = last;
            }
        }
}

// A few tiles: w += x g for one batch, then sums += x w for another, unless all inputs are zero there. `old` and `young` are
// where this lane's row is; the last of an odd number of tiles is loaded twice.
template <int COUNT>
__device__ inline void pass_over(float (*w)[4], const unsigned (*g)[4], const char* old, const char* young, int back,
                                 float (*sums)[4], bool changed = true, bool asked = true) {
    float d[COUNT][4], found[2][2][4];                // by lower and upper part: no product waits for the one before
    unsigned x[PARTS][COUNT + 1][2];
    if (changed) {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int e = 0; e < COUNT; e += 2)
                load_transposed(x[part][e], old + part * PLANE + STRIDE * e - (e + 1 == COUNT ? back : 0));
#pragma unroll
        for (int e = 0; e < COUNT; e++)
#pragma unroll
            for (int i = 0; i < 4; i++) d[e][i] = 0.0f;
#pragma unroll
        for (int part = PARTS - 1; part >= 0; part--)
#pragma unroll
            for (int factor = 1; factor >= 0; factor--)
#pragma unroll
                for (int e = 0; e < COUNT; e++) {
                    const unsigned b[2] = {x[part][e][0], x[part][e][factor]};
                    multiply_bf16(d[e], g[factor], b);
                }
#pragma unroll
        for (int e = 0; e < COUNT; e++)
#pragma unroll
            for (int i = 0; i < 4; i++) w[e][i] += d[e][i];
    }
    if (!asked) return;
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int e = 0; e < COUNT; e += 2)
            load_matrices(x[part][e], young + part * PLANE + STRIDE * e - (e + 1 == COUNT ? back : 0));
#pragma unroll
    for (int i = 0; i < 16; i++) found[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll
    for (int e = 0; e < COUNT; e++) {
        unsigned high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            split(w[e][i], high[i], low[i]);
        }
#pragma unroll
        for (int part = PARTS - 1; part >= 0; part--) {
            const unsigned first = x[part][e][0], second = x[part][e][1];
            const unsigned a[4] = {first << 16, second << 16, first & 0xffff0000u, second & 0xffff0000u};
            if (part < 2) {
                multiply_tf32(found[0][0], a, low);
                multiply_tf32(found[0][1], a, low + 2);
            }
            multiply_tf32(found[1][0], a, high);
            multiply_tf32(found[1][1], a, high + 2);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] += found[0][n][i] + found[1][n][i];
}

template <>
__device__ inline void pass_over<0>(float (*)[4], const unsigned (*)[4], const char*, const char*, int, float (*)[4], bool,
                                    bool) {}

// Ask for a part of a batch, by one of four warps: samples m, m + 4, m + 8. `next` is where the batch begins, `left` what is
// left of its epoch, `id` this lane's sample in it; they become those of the next batch.
__device__ inline void ask(Shared& shared, char* batches, const char* data, const long long* order, int step, int batch, int none,
                           int m, int lane, long long& next, int& left, int& id) {
    const int slot = step % SLOTS, sample = 4 * lane + m;
    if (step >= shared.job.length) return;
    const int size = min(batch, left);
    if (lane == 0) {
        if (m == 0) shared.scales[slot] = -shared.job.rate / size;
        expect(&shared.full[slot], (SAMPLES + 3 - m) / 4 * SAMPLE);
    }
    __syncwarp();
    if (sample < SAMPLES)
        copy(batches + slot * SLOT + sample * SAMPLE, data + (long long)id * SAMPLE, SAMPLE, &shared.full[slot]);
    next += size;
    left = left > size ? left - size : shared.job.samples;
    id = step + 1 < shared.job.length && sample < min(batch, left) ? (int)order[next + sample] : none;
}

// Registers go from the helpers to the warps that make passes.
#ifdef __CUDA_ARCH__
#define REGISTERS(change, count) asm volatile("setmaxnreg." change ".sync.aligned.u32 " #count ";")
#else
#define REGISTERS(change, count)
#endif

// The products of this batch's samples with those of the batch before, over every fourth 16 inputs.
__device__ inline void compare(const char* batch, const char* before, int lane, int group, float (*found)[32][4]) {
    const int own = min(lane % 16, SAMPLES - 1) * SAMPLE + lane / 16 * 16;
    float d[2][4] = {};
#pragma unroll 2
    for (int k = group; k < (INPUTS + 15) / 16; k += GROUPS) {
        unsigned a[PARTS][4], x[PARTS][4];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            load_matrices(a[part], batch + own + part * PLANE + 32 * k);
            load_matrices(x[part], before + own + part * PLANE + 32 * k);
        }
#pragma unroll
        for (int sum = PARTS - 1; sum >= 0; sum--)
#pragma unroll
            for (int part = 0; part <= sum; part++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const unsigned b[2] = {x[part][j], x[part][j + 2]};
                    multiply_bf16(d[j], a[sum - part], b);
                }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) *(float4*)found[j][lane] = make_float4(d[j][0], d[j][1], d[j][2], d[j][3]);
}

// The sum of some matrices.
template <int COUNT>
__device__ inline void add_up(const float (*from)[2][32][4], int stride, int j, int lane, float* d) {
    float4 sum = *(const float4*)from[0][j][lane];
#pragma unroll
    for (int m = 1; m < COUNT; m++) {
        const float4 more = *(const float4*)from[m * stride][j][lane];
        sum.x += more.x; sum.y += more.y; sum.z += more.z; sum.w += more.w;
    }
    d[0] = sum.x; d[1] = sum.y; d[2] = sum.z; d[3] = sum.w;
}

// The column of a class; those that there are not have columns that stay zero.
__device__ inline int place_of_class(int c) {
    return c < HALF ? c : c < CLASSES ? 8 + c - HALF : c < CLASSES + 8 - HALF ? c - CLASSES + HALF : c;
}

// From the products of batch b to its steps, by a helper warp for its 16 units.
__device__ inline void work_out(Shared& shared, const char* samples, int b, int m, int lane, double factor,
                                double center) {
    Group& group = shared.groups[m];
    const int row = lane / 4, column = lane % 4 * 2;
    const float f = (float)factor, scale = shared.scales[b % SLOTS];
    float extra[2], z[2][4], d[2][4], a[2][4], from[2][2][2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const char* end = samples + (i ? min(row + 8, SAMPLES - 1) : row) * SAMPLE + PARTS * PLANE;
        extra[i] = *(const float*)(end + 4) - (float)(center * INPUTS);
    }
    // z = samples x units: row and row + 8, column and column + 1 of 8n.
#pragma unroll
    for (int n = 0; n < 2; n++) add_up<WAYS>(shared.products[b % 2] + m, GROUPS, n, lane, z[n]);
    if (b > 0) {
        float late[2][4] = {};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            add_up<GROUPS>(shared.alike, 1, j, lane, d[j]);
            as_factor(d[j], a[0]);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float two[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int s = 8 * j + column + i;
                    two[i] = s < SAMPLES ? group.steps1[s][8 * n + row] : 0.0f;
                }
                multiply(late[n], a[0], two[0], two[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) z[n][i] += late[n][i];
    }
    __barrier_sync_count(2, 2 * HELPERS);             // the constants are there
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int u = 8 * n + column + i % 2;
            z[n][i] = f * z[n][i] + (group.bias[u] + extra[i / 2] * group.v[u]);
            z[n][i] = z[n][i] <= 0.0f ? 0.0f : z[n][i];  // a NaN stays one
            if (i < 2 || row + 8 < SAMPLES) group.hidden[b % 2][row + i / 2 * 8][u] = z[n][i];
        }
        as_factor(z[n], a[n]);
    }
    // d = samples x classes, in both its tiles of 8.
    __barrier_sync_count(3, 2 * HELPERS);             // the second layer is there
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) d[j][i] = m == 0 ? shared.bias2[8 * j + column + i % 2] : 0.0f;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 two = *(const float2*)&group.upper[8 * j + row][8 * n + column];
            multiply(d[j], a[n], two.x, two.y);
            from[j][n][0] = group.upper[8 * j + column][8 * n + row];
            from[j][n][1] = group.upper[8 * j + column + 1][8 * n + row];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < 2 || row + 8 < SAMPLES) shared.logits[m][row + i / 2 * 8][place_of_class(8 * j + column + i % 2)] = d[j][i];
    }
    __barrier_sync_count(1, HELPERS);
    {  // two lanes a sample, HALF classes each
        const int sample = min(lane / 2, SAMPLES - 1), other = lane % 2;
        const int label = *(const int*)(samples + sample * SAMPLE + PARTS * PLANE);
        const float own_scale = label >= 0 ? scale : 0.0f;
        float logits[8], ones[8], high = -1e30f, spread = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) logits[i] = 0.0f;
#pragma unroll
        for (int from = 0; from < GROUPS; from++)
#pragma unroll
            for (int i = 0; i < HALF; i += 4) {
                const float4 four = *(const float4*)&shared.logits[from][sample][8 * other + i];
                logits[i] += four.x; logits[i + 1] += four.y; logits[i + 2] += four.z; logits[i + 3] += four.w;
            }
#pragma unroll
        for (int i = 0; i < HALF; i++)
            if (CLASSES % 2 == 0 || i + 1 < HALF || other == 0) high = fmaxf(high, logits[i]);
        high = fmaxf(high, __shfl_xor_sync(ALL, high, 1));
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            ones[i] = CLASSES % 2 == 0 || i + 1 < HALF || other == 0 ? expf(logits[i] - high) : 0.0f;
            spread += ones[i];
        }
        spread += __shfl_xor_sync(ALL, spread, 1);
        const float share = own_scale / spread;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const bool right = other * HALF + i == label;
            if (m == 1 && lane < 2 * SAMPLES && other * HALF + i == max(label, 0)) {
                shared.gaps[sample] = right ? high - logits[i] : 0.0f;
                shared.spreads[sample] = right ? spread : 1.0f;
            }
            group.steps2[sample][8 * other + i] = share * ones[i] - (right ? own_scale : 0.0f);
        }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int s = row + i / 2 * 8;
            d[j][i] = s < SAMPLES ? group.steps2[s][place_of_class(8 * j + column + i % 2)] : 0.0f;
        }
    float steps[2][4] = {};
    unsigned factors[2][4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        as_factor(d[j], a[0]);
#pragma unroll
        for (int n = 0; n < 2; n++) multiply(steps[n], a[0], from[j][n][0], from[j][n][1]);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            steps[n][i] = z[n][i] <= 0.0f ? 0.0f : f * steps[n][i];
            if (i < 2 || row + 8 < SAMPLES) group.steps1[row + i / 2 * 8][8 * n + column + i % 2] = steps[n][i];
        }
    split_steps(steps, lane, factors);
#pragma unroll
    for (int i = 0; i < 2; i++)
        *(uint4*)shared.steps[b % 2][m][i][lane] = make_uint4(factors[i][0], factors[i][1], factors[i][2], factors[i][3]);
}

// The constants of 16 units, and the losses, after batch b.
__device__ inline void change_constants(Shared& shared, const char* samples, int b, int m, int lane, double inverse,
                                        double center) {
    Group& group = shared.groups[m];
    if (lane < 16) {
        float sum = 0.0f, weighted = 0.0f;
#pragma unroll
        for (int s = 0; s < SAMPLES; s++) {
            const float one = group.steps1[s][lane];
            sum += one;
            weighted += one * *(const float*)(samples + s * SAMPLE + PARTS * PLANE + 4);
        }
        group.G[lane] += inverse * sum;
        group.constant[lane] += inverse * sum - center * (inverse * weighted);
        group.v[lane] = (float)(-center * group.G[lane]);
        group.bias[lane] = (float)group.constant[lane];
    } else if (m == 1 && lane - 16 < SAMPLES) {
        const double one = (double)logf(shared.spreads[lane - 16]) + shared.gaps[lane - 16];
        shared.losses[lane - 16] += one;
        shared.squares[lane - 16] += one * one;
    }
}

// The second layer after batch b: a unit and half of the classes a lane.
__device__ inline void change_upper(Shared& shared, int b, int m, int lane) {
    Group& group = shared.groups[m];
    const int u = lane % 16, first = lane / 16;
    float moved[8];
#pragma unroll
    for (int i = 0; i < 8; i++) moved[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < SAMPLES; s++) {
        const float h = group.hidden[b % 2][s][u];
#pragma unroll
        for (int i = 0; i < HALF; i += 4) {
            const float4 four = *(const float4*)&group.steps2[s][8 * first + i];
            moved[i] += four.x * h; moved[i + 1] += four.y * h; moved[i + 2] += four.z * h; moved[i + 3] += four.w * h;
        }
    }
#pragma unroll
    for (int i = 0; i < HALF; i++)
        if (first * HALF + i < CLASSES) group.upper[first * HALF + i][u] += moved[i];
    if (m == 0 && lane < CLASSES) {
        float moved2 = 0.0f;
#pragma unroll
        for (int s = 0; s < SAMPLES; s++) moved2 += group.steps2[s][place_of_class(lane)];
        shared.bias2[lane] += moved2;
    }
}

// One block a job. `tiles` are the first layer's weights of initial models as the lanes hold them (starts, TILES, warps, lanes,
// 4), `unit_sums` their sums over the inputs. `losses` gets the sum of the samples' losses and of their squares.
extern "C" __global__ void __launch_bounds__(THREADS + 2 * HELPERS, 1)
train(const float* starts, float* models, const char* data, const unsigned short* places, const float* tiles,
      const double* unit_sums, const long long* order, const Job* jobs,
      double factor, double inverse, double center, int batch, int none, double* losses) {
    SHARED(memory);
    char* batches = memory;
    Shared& shared = *(Shared*)(memory + SLOTS * SLOT);
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, m = warp % GROUPS, unit = 16 * m;
    Group& group = shared.groups[m];
    if (t == 0) {
        shared.job = jobs[blockIdx.x];
        for (int i = 0; i < SLOTS; i++) make_barrier(&shared.full[i]);
    }
    __syncthreads();
    const long long size = (long long)INPUTS * UNITS + UNITS + CLASSES * UNITS + CLASSES;
    const float *start = starts + shared.job.start * size, *tail = start + INPUTS * UNITS;
    float* model = models + shared.job.row * size;
    const int turns = shared.job.length + 2;          // two more for the last steps
    if (t >= THREADS + HELPERS) {
        REGISTERS("dec", 48);
        for (int i = lane; i < 16 * LINE; i += 32) {
            const int c = i / LINE, u = i % LINE;
            group.upper[c][u] = c < CLASSES && u < 16 ? tail[UNITS + c * UNITS + unit + u] : 0.0f;
            if (c < SAMPLES) group.steps1[c][u] = group.steps2[c][u] = 0.0f;
        }
        for (int i = lane; i < 4 * 128; i += 32) shared.steps[i / 256][m][i / 128 % 2][i / 4 % 32][i % 4] = 0u;
        if (m == 0 && lane < 16) shared.bias2[lane] = lane < CLASSES ? tail[UNITS + CLASSES * UNITS + lane] : 0.0f;
        if (m == 1 && lane < SAMPLES) shared.losses[lane] = shared.squares[lane] = 0.0;
        long long next = shared.job.begin;
        int left = shared.job.samples, id = 4 * lane + m < min(batch, left) ? (int)order[next + 4 * lane + m] : none;
        ask(shared, batches, data, order, 0, batch, none, m, lane, next, left, id);
        if (lane < 16) {
            group.G[lane] = 0.0;
            group.constant[lane] = tail[unit + lane] - center * unit_sums[shared.job.start * UNITS + unit + lane];
            group.v[lane] = 0.0f;
            group.bias[lane] = (float)group.constant[lane];
        }
        __syncthreads();
        for (int k = 0; k < turns; k++) {
            const bool met = k > 0 && k <= shared.job.length;  // by the other helpers
            if (k > 1) change_constants(shared, batches + (k - 2) % SLOTS * SLOT, k - 2, m, lane, inverse, center);
            if (met) __barrier_sync_count(2, 2 * HELPERS);
            if (k > 1) change_upper(shared, k - 2, m, lane);
            if (met) __barrier_sync_count(3, 2 * HELPERS);
            ask(shared, batches, data, order, k + 1, batch, none, m, lane, next, left, id);
            if (k > 0 && k < shared.job.length) {
                await(&shared.full[k % SLOTS], k / SLOTS & 1);
                compare(batches + k % SLOTS * SLOT, batches + (k - 1) % SLOTS * SLOT, lane, m, shared.alike[m]);
            }
            __syncthreads();
        }
        float* end = model + INPUTS * UNITS;
        if (lane < 16) end[unit + lane] = (float)(tail[unit + lane] + group.G[lane]);
        for (int i = lane; i < 16 * CLASSES; i += 32) end[UNITS + i / 16 * UNITS + unit + i % 16] = group.upper[i / 16][i % 16];
        if (m == 0 && lane < CLASSES) end[UNITS + CLASSES * UNITS + lane] = shared.bias2[lane];
        if (m == 1 && lane < 2) {
            double sum = 0.0;
            for (int s = 0; s < SAMPLES; s++) sum += lane ? shared.squares[s] : shared.losses[s];
            losses[2 * shared.job.row + lane] = sum;
        }
        return;
    }
    if (t >= THREADS) {
        REGISTERS("dec", 72);
        __syncthreads();
        for (int k = 0; k < turns; k++) {
            if (k > 0 && k <= shared.job.length)
                work_out(shared, batches + (k - 1) % SLOTS * SLOT, k - 1, m, lane, factor, center);
            __syncthreads();
        }
        return;
    }
    REGISTERS("inc", 120);
    const int way = warp / GROUPS, row = lane / 4, column = lane % 4 * 2;
    const float4* own_start = (const float4*)tiles + ((long long)shared.job.start * TILES * WAYS * GROUPS + warp) * 32 + lane;
#pragma unroll 4
    for (int k = KEPT; k < TILES; k++) *(float4*)shared.rest[k - KEPT][warp][lane] = own_start[k * THREADS];
    float w[KEPT][4];
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const float4 four = own_start[k * THREADS];
        w[k][0] = four.x; w[k][1] = four.y; w[k][2] = four.z; w[k][3] = four.w;
    }
    __syncthreads();
    // Where this lane's row of four matrices is: samples 0-7, and four times 8 and 9, of a tile and of the next.
    const int own = (lane % 16 < 8 ? lane % 8 : 8 + lane % 2) * SAMPLE + 16 * way + lane / 16 * STRIDE, back = lane / 16 * STRIDE;
    for (int k = 0; k < turns; k++) {
        const bool there = k < turns - 2;             // else what is made of the products is not looked at
        const int before = k < 2 ? 0 : (k - 2) % SLOTS, now = there ? k % SLOTS : before;
        const char *old = batches + before * SLOT + own, *young = batches + now * SLOT + own;
        unsigned g[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 four = *(const uint4*)shared.steps[k % 2][m][i][lane];
            g[i][0] = four.x; g[i][1] = four.y; g[i][2] = four.z; g[i][3] = four.w;
        }
        if (there) await(&shared.full[now], k / SLOTS & 1);
        const char* end = batches + (lane < 16 ? before : now) * SLOT + min(lane % 16, SAMPLES - 1) * SAMPLE + PARTS * PLANE;
        const unsigned runs = *(const unsigned*)(end + 8);
        const unsigned changed = __reduce_or_sync(ALL, lane < 16 ? runs : 0u);
        const unsigned asked = __reduce_or_sync(ALL, lane < 16 ? 0u : runs);
        float z[2][4] = {};
        const int last = KEPT - KEPT % LONG_RUN;
#pragma unroll
        for (int i = 0; i < last; i += LONG_RUN) pass_over<LONG_RUN>(w + i, g, old + STRIDE * i, young + STRIDE * i, back, z);
        pass_over<KEPT % LONG_RUN>(w + last, g, old + STRIDE * last, young + STRIDE * last, back, z);
#pragma unroll 1
        for (int i = KEPT; i < TILES; i += RUN) {
            const unsigned bit = 1u << (i - KEPT) / RUN;
            if (((changed | asked) & bit) == 0u) continue;
            float four[RUN][4];
#pragma unroll
            for (int e = 0; e < RUN; e++) {
                const float4 one = *(const float4*)shared.rest[i - KEPT + e][warp][lane];
                four[e][0] = one.x; four[e][1] = one.y; four[e][2] = one.z; four[e][3] = one.w;
            }
            pass_over<RUN>(four, g, old + STRIDE * i, young + STRIDE * i, back, z, changed & bit, asked & bit);
#pragma unroll
            for (int e = 0; e < RUN; e++)
                *(float4*)shared.rest[i - KEPT + e][warp][lane] = make_float4(four[e][0], four[e][1], four[e][2], four[e][3]);
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
            *(float4*)shared.products[k % 2][warp][n][lane] = make_float4(z[n][0], z[n][1], z[n][2], z[n][3]);
        __syncthreads();
    }
    // 16 units at a time go to where they belong in what was the batches' memory, and from there to the model.
    float* held = (float*)batches;
    unsigned short* own_places = (unsigned short*)(held + 16 * INPUTS);
    for (int i = t; i < INPUTS; i += THREADS) own_places[i] = places[i];
    for (int first = 0; first < UNITS; first += 16) {
        __barrier_sync_count(4, THREADS);
        if (unit == first) {
#pragma unroll
            for (int k = 0; k < TILES; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int u = row + i / 2 * 8, p = 8 * (WAYS * k + way) + column + i % 2;
                    const float one = k < KEPT ? w[min(k, KEPT - 1)][i] : shared.rest[max(k - KEPT, 0)][warp][lane][i];
                    if (p < INPUTS) held[u * INPUTS + own_places[p]] = one + group.v[u];
                }
        }
        __barrier_sync_count(4, THREADS);
        for (int i = t; i < 16 * INPUTS; i += THREADS) model[first * INPUTS + i] = held[i];
    }
}
