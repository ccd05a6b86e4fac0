// All epochs of training one embedding psi, one block per fit: `cuda_embedding.py` launches it and has the shapes.
//
// A layer's values are a row per unit, STRIDE apart, a column per point; columns beyond the points, and points that are
// not in a mini-batch, count nothing. Rows and parameters stay in the block's shared memory as far as they fit. Packed
// parameters: W (outs, ins), gamma, beta of three hidden layers, then W and bias of the last, units padded to eights.
//
// Functions that write rows of values end with a barrier, `outer` does not.
//
// Set by the host: INPUTS, P1, P2, P3, P4 (padded units), STRIDE, MINI (mini-batches), SHARED (rows fit), and the
// number of THREADS. One thread without neighbours computes the same, which is how the tests run it without a GPU.

#ifdef __CUDACC__
#define LANES(n) (n)
__device__ inline float over_lanes(float value, int lanes) {
  for (int far = lanes / 2; far; far /= 2) value += __shfl_xor_sync(0xffffffff, value, far);
  return value;
}
#else
#define LANES(n) 1
inline float over_lanes(float value, int) { return value; }
#endif

typedef unsigned long long Word;
// Threads that share one of so many pieces of work.
#define SHARE(n) LANES((n) * 2 > THREADS ? 1 : (n) * 4 > THREADS ? 2 : (n) * 8 > THREADS ? 4 \
                       : (n) * 16 > THREADS ? 8 : (n) * 32 > THREADS ? 16 : 32)
const int UNITS = P1 + P2 + P3;
const int W1 = 0, W2 = W1 + P1 * (INPUTS + 2), W3 = W2 + P2 * (P1 + 2), W4 = W3 + P3 * (P2 + 2);
const int SIZE = W4 + P4 * (P3 + 1);
const int DEEP = P3 + 2 * P4;  // the third layer beside psi and its gradient
const int WIDE = P1 > P2 ? (P1 > DEEP ? P1 : DEEP) : (P2 > DEEP ? P2 : DEEP);
const int ROWS = P1 + WIDE + P3 + WIDE + (1 + MINI) * INPUTS;
const int FREE = P1 + WIDE + P3 + WIDE, WORKERS = FREE < THREADS ? FREE : THREADS;  // rows free between epochs
const unsigned short NONE = 0xFFFF;
#define RECORD (1 + 2 * STRIDE + 2 * batch)

struct Settings {  // as `cuda_embedding` writes them
  float drop, b1, b2, decay, momentum, epsilon;
};

__device__ inline float at(const float4& v, int k) { return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w; }
__device__ inline const float4& load(const float* at) { return *reinterpret_cast<const float4*>(at); }

// out = W a, four units and four points at a time.
template <int INS, int OUTS>
__device__ void product(const float* w, const float* a, float* out, int columns, const float* bias = nullptr) {
  for (int tile = threadIdx.x; tile < OUTS / 4 * columns; tile += THREADS) {
    int unit = tile / columns * 4, point = tile % columns * 4;
    float sum[4][4] = {};
#pragma unroll 2
    for (int in = 0; in < INS; in += 4) {
      float4 value[4];
#pragma unroll
      for (int k = 0; k < 4; k++) value[k] = load(a + (in + k) * STRIDE + point);
#pragma unroll
      for (int row = 0; row < 4; row++) {
        float4 weight = load(w + (unit + row) * INS + in);
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
          for (int column = 0; column < 4; column++) sum[row][column] += at(weight, k) * at(value[k], column);
      }
    }
#pragma unroll
    for (int row = 0; row < 4; row++) {
      float more = bias ? bias[unit + row] : 0.0f;
      *reinterpret_cast<float4*>(out + (unit + row) * STRIDE + point) =
          make_float4(sum[row][0] + more, sum[row][1] + more, sum[row][2] + more, sum[row][3] + more);
    }
  }
  __syncthreads();
}

// by_a = W' by_out.
template <int INS, int OUTS>
__device__ void transposed(const float* w, const float* by_out, float* by_a, int columns) {
  for (int tile = threadIdx.x; tile < INS / 4 * columns; tile += THREADS) {
    int unit = tile / columns * 4, point = tile % columns * 4;
    float sum[4][4] = {};
#pragma unroll 4
    for (int out = 0; out < OUTS; out++) {
      const float4 weight = load(w + out * INS + unit), value = load(by_out + out * STRIDE + point);
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int column = 0; column < 4; column++) sum[k][column] += at(weight, k) * at(value, column);
    }
#pragma unroll
    for (int row = 0; row < 4; row++)
      *reinterpret_cast<float4*>(by_a + (unit + row) * STRIDE + point) =
          make_float4(sum[row][0], sum[row][1], sum[row][2], sum[row][3]);
  }
  __syncthreads();
}

// by_w = by_out a': so many units by four inputs at a time, points shared among lanes.
template <int INS, int OUTS, int TALL>
__device__ void outer(const float* by_out, const float* a, float* by_w, int columns) {
  const int tiles = OUTS / TALL * (INS / 4);
  const int lanes = SHARE(tiles);
  const int groups = THREADS / lanes, lane = threadIdx.x % lanes;
  for (int first = 0; first < tiles; first += groups) {  // every lane takes part in sums
    int tile = first + threadIdx.x / lanes, real = tile < tiles ? columns : 0;
    int unit = tile / (INS / 4) * TALL, in = tile % (INS / 4);
    float sum[TALL][4] = {};
    for (int column = lane; column < real; column += lanes) {
      float4 value[4];
#pragma unroll
      for (int k = 0; k < 4; k++) value[k] = load(a + (in + k * (INS / 4)) * STRIDE + column * 4);
#pragma unroll
      for (int row = 0; row < TALL; row++) {
        float4 by = load(by_out + (unit + row) * STRIDE + column * 4);
#pragma unroll
        for (int k = 0; k < 4; k++)
          sum[row][k] += by.x * value[k].x + by.y * value[k].y + by.z * value[k].z + by.w * value[k].w;
      }
    }
#pragma unroll
    for (int row = 0; row < TALL; row++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        float whole = over_lanes(sum[row][k], lanes);
        if (lane == 0 && real) by_w[(unit + row) * INS + in + k * (INS / 4)] = whole;
      }
  }
}

__device__ inline unsigned mixed(unsigned z) {  // all bits of z in all bits of the result
  z = (z ^ (z >> 16)) * 0x85EBCA6Bu;
  z = (z ^ (z >> 13)) * 0xC2B2AE35u;
  return z ^ (z >> 16);
}

// Which of four points of a unit dropout keeps, times what it makes up for: a hash of a counter, 16 bits a point.
__device__ inline float4 kept(unsigned key, int unit, int column, float drop) {
  const unsigned counter = key + 2u * (unsigned)(unit * 1024 + column), one = mixed(counter), two = mixed(counter + 1u);
  const float scale = 1.0f / (1.0f - drop);
  const unsigned limit = (unsigned)(drop * 65536.0f + 0.5f);
  return make_float4((one & 0xFFFF) >= limit ? scale : 0.0f, (one >> 16) >= limit ? scale : 0.0f,
                     (two & 0xFFFF) >= limit ? scale : 0.0f, (two >> 16) >= limit ? scale : 0.0f);
}

__device__ inline float active(float normal, float gain, float shift) {
  float value = normal * gain + shift;
  return value < 0.0f ? 0.0f : value;  // keeps NaN, so that divergence is seen
}

__device__ inline float4 activated(const float4& n, float gain, float shift, const float4& keep) {
  return make_float4(active(n.x, gain, shift) * keep.x, active(n.y, gain, shift) * keep.y,
                     active(n.z, gain, shift) * keep.z, active(n.w, gain, shift) * keep.w);
}

// a = dropout(relu(gamma n + beta)) once more, on the way back.
__device__ void activate(const float* n, float* a, const float* gain, int units, int from, int columns, unsigned key,
                         float drop) {
  for (int cell = threadIdx.x; cell < units * columns; cell += THREADS) {
    int unit = cell / columns, column = cell % columns;
    const float4 value = load(n + unit * STRIDE + column * 4);
    *reinterpret_cast<float4*>(a + unit * STRIDE + column * 4) =
        activated(value, gain[unit], gain[units + unit], kept(key, from + unit, column, drop));
  }
  __syncthreads();
}

// Batch normalisation by how often points stand in the batch; z becomes normalised, a what the next layer sees.
template <int PADDED>
__device__ void normalise(float* z, float* a, const float* often, float total, const float* gain, float* inverses,
                          float* running, int from, int columns, unsigned key, const Settings& s) {
  const int lanes = SHARE(PADDED), lane = threadIdx.x % lanes, groups = THREADS / lanes;
  for (int first = 0; first < PADDED; first += groups) {
    int unit = first + threadIdx.x / lanes, real = unit < PADDED ? columns : 0;
    float* row = z + unit * STRIDE;
    float mean = 0.0f, variance = 0.0f;
    for (int column = lane; column < real; column += lanes) {
      const float4 v = load(row + column * 4), w = load(often + column * 4);
      mean += v.x * w.x + v.y * w.y + v.z * w.z + v.w * w.w;
    }
    mean = over_lanes(mean, lanes) / total;
    for (int column = lane; column < real; column += lanes) {
      const float4 v = load(row + column * 4), w = load(often + column * 4);
      float x = v.x - mean, y = v.y - mean, u = v.z - mean, t = v.w - mean;
      variance += x * x * w.x + y * y * w.y + u * u * w.z + t * t * w.w;
    }
    variance = over_lanes(variance, lanes) / total;
    float inverse = 1.0f / sqrtf(variance + s.epsilon);
    for (int column = lane; column < real; column += lanes) {
      const float4 v = load(row + column * 4);
      float4 n = make_float4((v.x - mean) * inverse, (v.y - mean) * inverse, (v.z - mean) * inverse,
                             (v.w - mean) * inverse);
      *reinterpret_cast<float4*>(row + column * 4) = n;
      *reinterpret_cast<float4*>(a + unit * STRIDE + column * 4) =
          activated(n, gain[unit], gain[PADDED + unit], kept(key, from + unit, column, s.drop));
    }
    if (lane == 0 && real) {
      float fair = variance * (total / (total > 2.0f ? total - 1.0f : 1.0f));
      inverses[from + unit] = inverse;
      running[from + unit] += s.momentum * (mean - running[from + unit]);
      running[UNITS + from + unit] += s.momentum * (fair - running[UNITS + from + unit]);
    }
  }
  __syncthreads();
}

// Back through dropout, ReLU and normalisation: from the gradient by what the next layer saw to that by z.
template <int PADDED>
__device__ void unnormalise(float* by_a, const float* n, float* by_z, const float* often, float total,
                            const float* gain, float* by_gain, const float* inverses, int from, int columns, unsigned key,
                            float drop) {
  const int lanes = SHARE(PADDED), lane = threadIdx.x % lanes, groups = THREADS / lanes;
  for (int first = 0; first < PADDED; first += groups) {
    int unit = first + threadIdx.x / lanes, real = unit < PADDED ? columns : 0;
    float grow = real ? gain[unit] : 0.0f, shift = real ? gain[PADDED + unit] : 0.0f, by_shift = 0.0f, by_grow = 0.0f;
    for (int column = lane; column < real; column += lanes) {
      const float4 v = load(n + unit * STRIDE + column * 4), by = load(by_a + unit * STRIDE + column * 4);
      const float4 keep = kept(key, from + unit, column, drop);
      float back[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        back[k] = at(v, k) * grow + shift > 0.0f ? at(by, k) * at(keep, k) : 0.0f;
        by_shift += back[k];
        by_grow += back[k] * at(v, k);
      }
      *reinterpret_cast<float4*>(by_a + unit * STRIDE + column * 4) = make_float4(back[0], back[1], back[2], back[3]);
    }
    by_shift = over_lanes(by_shift, lanes);
    by_grow = over_lanes(by_grow, lanes);
    float factor = real ? grow * inverses[from + unit] : 0.0f, mean_shift = by_shift / total, mean_grow = by_grow / total;
    for (int column = lane; column < real; column += lanes) {
      const float4 v = load(n + unit * STRIDE + column * 4), by = load(by_a + unit * STRIDE + column * 4);
      const float4 w = load(often + column * 4);
      float out[4];
#pragma unroll
      for (int k = 0; k < 4; k++) out[k] = factor * (at(by, k) - at(w, k) * (mean_shift + at(v, k) * mean_grow));
      *reinterpret_cast<float4*>(by_z + unit * STRIDE + column * 4) = make_float4(out[0], out[1], out[2], out[3]);
    }
    if (lane == 0 && real) by_gain[unit] = by_grow, by_gain[PADDED + unit] = by_shift;
  }
  __syncthreads();
}

// A hidden layer with running statistics and without dropout: z becomes what the next layer sees.
__device__ void settled(float* z, const float* gain, const float* running, int units, int from, int columns,
                        float epsilon) {
  for (int cell = threadIdx.x; cell < units * columns; cell += THREADS) {
    int unit = cell / columns, point = cell % columns * 4;
    float grow = gain[unit] / sqrtf(running[UNITS + from + unit] + epsilon);
    float shift = gain[units + unit] - grow * running[from + unit];
    const float4 v = load(z + unit * STRIDE + point);
    *reinterpret_cast<float4*>(z + unit * STRIDE + point) =
        make_float4(active(v.x, grow, shift), active(v.y, grow, shift), active(v.z, grow, shift),
                    active(v.w, grow, shift));
  }
  __syncthreads();
}

__device__ inline float error(const float* psi, const float* target, int i, int j) {
  float sum = -target[i] * target[j];
#pragma unroll
  for (int k = 0; k < P4; k++) sum += psi[k * STRIDE + i] * psi[k * STRIDE + j];
  return sum;
}

// The first pair of a mini-batch.
__device__ inline int begins(int step, int pairs, int steps) { return (int)(((Word)step * pairs + steps - 1) / steps); }

// Lay out the mini-batches of an epoch, one thread each. A record holds how many points stand in it and which, then for
// each of them the first side of a pair that it is, then after each side the next one of the same point; `orders` comes to hold
// places among these points. `room` holds (WORKERS, 2, STRIDE) meanwhile.
__device__ void deal(int* orders, unsigned short* records, unsigned short* room, int count, int fit, int steps, int batch) {
  unsigned short *place = room + threadIdx.x * 2 * STRIDE, *head = place + STRIDE;
  for (int step = threadIdx.x; step < steps && threadIdx.x < WORKERS; step += WORKERS) {
    unsigned short* record = records + step * RECORD;
    const int from = begins(step, fit, steps), size = begins(step + 1, fit, steps) - from;
    for (int k = 0; k < STRIDE; k++) place[k] = head[k] = record[1 + k] = NONE;
    int used = 0;
    for (int first = 0; first < size; first += 8) {
      int some[8];  // loaded side by side
#pragma unroll
      for (int k = 0; k < 8; k++) some[k] = first + k < size ? orders[from + first + k] : 0;
      for (int k = 0; k < 8 && first + k < size; k++) {
        for (int side = 0; side < 2; side++) {
          const int point = side ? some[k] & 0xFFFF : some[k] >> 16;
          if (place[point] == NONE) record[1 + used] = point, place[point] = used++;
          record[1 + 2 * STRIDE + 2 * (first + k) + side] = head[place[point]];
          head[place[point]] = 2 * (first + k) + side;
        }
        orders[from + first + k] = place[some[k] >> 16] << 16 | place[some[k] & 0xFFFF];
      }
    }
    for (int k = 0; k < STRIDE; k++) record[1 + STRIDE + k] = head[k];
    record[0] = used;
  }
}

// The same sum in every thread.
__device__ float over_block(float value, float* room) {
  value = over_lanes(value, LANES(32));
  __syncthreads();
  if (threadIdx.x % LANES(32) == 0) room[threadIdx.x / LANES(32)] = value;
  __syncthreads();
  value = 0.0f;
  for (int warp = 0; warp < THREADS / LANES(32); warp++) value += room[warp];
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) train(
    const float* xs,           // (N, INPUTS, STRIDE)
    const float* targets,      // (N, STRIDE)
    const unsigned char* fits, // (N, STRIDE, STRIDE) 1 where a pair is for training; full batches only
    const int* pairs,          // (N, most) training pairs by rank, i * 65536 + j
    const int* checks,         // (N, most) pairs of validation
    int* orders,               // (N, most) room for the training pairs of an epoch in their order
    unsigned short* records,   // (N, steps, RECORD) room for what `deal` says of each mini-batch
    const long long* moves,    // (N, epochs, 2)
    const int* counts,         // (N, 4) points, training pairs, pairs of validation, mini-batches an epoch
    const long long* seeds,    // (N)
    float* parameters,         // (N, SIZE)
    float* runnings,           // (N, 2, UNITS)
    float* bests, float* best_runnings,  // of the best epoch
    float* moments,            // (N, 3, SIZE) gradient and Adam's moments
    const float* rates,        // (steps, 2) Adam's corrections; the last row holds for later steps
    const float* numbers,      // Settings
    float* scratch,            // (N, rows, STRIDE) where rows do not fit
    long long* epochs, float* losses,  // (N)
    int most, int last_rate, int patience, int max_epochs, int batch, int most_steps) {
  const int run = blockIdx.x, me = threadIdx.x;
  const Settings s = *reinterpret_cast<const Settings*>(numbers);
#ifdef __CUDACC__
  extern __shared__ float4 room4[];
  float* room = reinterpret_cast<float*>(room4);
#else
  float* room = scratch + (long long)gridDim.x * ROWS * STRIDE;
#endif
  float* p = room;
  float* running = p + SIZE;
  float* inverses = running + 2 * UNITS;
  float* often = inverses + UNITS;
  float* target = often + STRIDE;
  float* small = target + (1 + MINI) * STRIDE;       // (64) sums over the block
  int* chosen = reinterpret_cast<int*>(small + 64);  // (batch) pairs of the mini-batch
  float* errors = small + 64 + batch;                // (batch)
#if MINI
  unsigned short* head = reinterpret_cast<unsigned short*>(errors + batch);  // (STRIDE) of a record
  unsigned short* after = head + STRIDE;                                     // (2 batch)
#endif
#if SHARED
  float* a = errors + batch + MINI * (STRIDE / 2 + batch);
#else
  float* a = scratch + (long long)run * ROWS * STRIDE;
#endif
  float* b = a + P1 * STRIDE;      // n of the second layer; later gradients of the first
  float* c = b + WIDE * STRIDE;    // n of the third
  float* e = c + P3 * STRIDE;      // what a layer sees; gradients
  float* whole_x = e + WIDE * STRIDE;
#if MINI
  float* x = whole_x + INPUTS * STRIDE;
  float* whole_target = target + STRIDE;
#else
  float *x = whole_x, *whole_target = target;
#endif
  float* by_psi = e + P3 * STRIDE;
  float* psi = by_psi + P4 * STRIDE;

  xs += (long long)run * INPUTS * STRIDE;
  fits += (long long)run * STRIDE * STRIDE;
  pairs += (long long)run * most;
  checks += (long long)run * most;
  orders += (long long)run * most;
  records += (long long)run * most_steps * RECORD;
  moves += (long long)run * max_epochs * 2;
  float* g = moments + (long long)run * 3 * SIZE;
  float* first = g + SIZE;
  float* second = first + SIZE;
  float* best_p = bests + (long long)run * SIZE;
  float* best_running = best_runnings + (long long)run * 2 * UNITS;
  const int count = counts[4 * run], fit = counts[4 * run + 1], held = counts[4 * run + 2], steps = counts[4 * run + 3];
  const int all = (count + 3) / 4;
  int columns = all;

  for (int k = me; k < SIZE; k += THREADS) p[k] = parameters[(long long)run * SIZE + k], g[k] = first[k] = second[k] = 0.0f;
  for (int k = me; k < 2 * UNITS; k += THREADS) running[k] = runnings[(long long)run * 2 * UNITS + k];
  for (int k = me; k < STRIDE; k += THREADS) {
    often[k] = k < count ? 1.0f : 0.0f;
    whole_target[k] = targets[(long long)run * STRIDE + k];
  }
  for (int k = me; k < ROWS * STRIDE; k += THREADS) a[k] = 0.0f;
  __syncthreads();
  for (int k = me; k < INPUTS * STRIDE; k += THREADS) whole_x[k] = xs[k];
  __syncthreads();

  float best = losses[run];  // infinite
  int epoch = 0, waited = 0, taken = 0;
  bool finite = count > 0;
  while (finite && epoch < max_epochs && waited < patience) {
#if MINI
    const Word times = (Word)moves[2 * epoch], plus = (Word)moves[2 * epoch + 1];
    for (int k = me; k < fit; k += THREADS) orders[(times * k + plus) % fit] = pairs[k];
    __syncthreads();
    deal(orders, records, reinterpret_cast<unsigned short*>(a), count, fit, steps, batch);
    __syncthreads();
#endif
    for (int step = 0; step < steps && finite; step++) {
      const unsigned key = mixed((unsigned)(seeds[run] >> 32) ^ mixed((unsigned)seeds[run] ^ mixed((unsigned)taken)));
      float total = (float)count, share = 1.0f / (fit > 0 ? fit : 1);
#if MINI
      const int from = begins(step, fit, steps), size = begins(step + 1, fit, steps) - from;
      const unsigned short* record = records + step * RECORD;
      columns = (record[0] + 3) / 4;
      for (int k = me; k < STRIDE; k += THREADS) {
        const int point = record[1 + k];
        often[k] = 0.0f;
        head[k] = record[1 + STRIDE + k];
        target[k] = point == NONE ? 0.0f : whole_target[point];
        for (int in = 0; in < INPUTS; in++) x[in * STRIDE + k] = point == NONE ? 0.0f : whole_x[in * STRIDE + point];
      }
      for (int k = me; k < 2 * size; k += THREADS) after[k] = record[1 + 2 * STRIDE + k];
      __syncthreads();
      for (int k = me; k < size; k += THREADS) {
        chosen[k] = orders[from + k];
        atomicAdd(often + (chosen[k] >> 16), 1.0f);  // whole numbers: in any order the same
        atomicAdd(often + (chosen[k] & 0xFFFF), 1.0f);
      }
      total = 2.0f * size;
      share = 1.0f / (size > 0 ? size : 1);
      __syncthreads();
#endif
      // Forward with batch statistics and dropout.
      product<INPUTS, P1>(p + W1, x, a, columns);
      normalise<P1>(a, e, often, total, p + W2 - 2 * P1, inverses, running, 0, columns, key, s);
      product<P1, P2>(p + W2, e, b, columns);
      normalise<P2>(b, e, often, total, p + W3 - 2 * P2, inverses, running, P1, columns, key, s);
      product<P2, P3>(p + W3, e, c, columns);
      normalise<P3>(c, e, often, total, p + W4 - 2 * P3, inverses, running, P1 + P2, columns, key, s);
      product<P3, P4>(p + W4, e, psi, columns, p + W4 + P4 * P3);

      // The loss over training pairs, and its gradient by psi.
      float loss = 0.0f;
#if MINI
      for (int k = me; k < size; k += THREADS) {
        float one = error(psi, target, chosen[k] >> 16, chosen[k] & 0xFFFF);
        errors[k] = 2.0f * share * one;
        loss += share * one * one;
      }
      __syncthreads();
      const int PARTS = LANES(4), part = me % PARTS;  // a quarter of psi each
      for (int i = me / PARTS; i < 4 * columns; i += THREADS / PARTS) {
        float sum[P4] = {};
        for (int side = head[i]; side != NONE; side = after[side]) {
          const int other = side & 1 ? chosen[side / 2] >> 16 : chosen[side / 2] & 0xFFFF;
          const float slope = errors[side / 2];
#pragma unroll
          for (int h = 0; h < P4 / PARTS; h++) sum[h] += slope * psi[(part * (P4 / PARTS) + h) * STRIDE + other];
        }
#pragma unroll
        for (int h = 0; h < P4 / PARTS; h++) by_psi[(part * (P4 / PARTS) + h) * STRIDE + i] = sum[h];
      }
#else
      const int PARTS = LANES(2), part = me % PARTS;  // half of the other points each
      for (int begin = 0; begin < 4 * columns; begin += THREADS / PARTS) {
        const int i = begin + me / PARTS, real = i < 4 * columns ? columns : 0;
        float own[P4], sum[P4] = {};
#pragma unroll
        for (int h = 0; h < P4; h++) own[h] = real ? psi[h * STRIDE + i] : 0.0f;
        for (int column = part; column < real; column += PARTS) {
          const float4 t = load(target + column * 4);
          float4 wrong = make_float4(-target[i] * t.x, -target[i] * t.y, -target[i] * t.z, -target[i] * t.w);
#pragma unroll
          for (int h = 0; h < P4; h++) {
            const float4 v = load(psi + h * STRIDE + column * 4);
            wrong.x += own[h] * v.x, wrong.y += own[h] * v.y, wrong.z += own[h] * v.z, wrong.w += own[h] * v.w;
          }
          float slope[4];
#pragma unroll
          for (int k = 0; k < 4; k++) {
            const int j = column * 4 + k;
            slope[k] = fits[j * STRIDE + i] ? (i == j ? 4.0f : 2.0f) * share * at(wrong, k) : 0.0f;
            loss += 0.25f * slope[k] * at(wrong, k);
          }
#pragma unroll
          for (int h = 0; h < P4; h++) {
            const float4 v = load(psi + h * STRIDE + column * 4);
            sum[h] += slope[0] * v.x + slope[1] * v.y + slope[2] * v.z + slope[3] * v.w;
          }
        }
#pragma unroll
        for (int h = 0; h < P4; h++) {
          float whole = over_lanes(sum[h], PARTS);
          if (part == 0 && real) by_psi[h * STRIDE + i] = whole;
        }
      }
#endif
      loss = over_block(loss, small);
      finite = loss - loss == 0.0f;
      if (!finite) break;

      // Back, layer by layer; `e` and `b` hold one thing after the other.
      outer<P3, P4, 2>(by_psi, e, g + W4, columns);
      const int lanes = LANES(8);
      for (int begin = 0; begin < P4; begin += THREADS / lanes) {
        const int unit = begin + me / lanes;
        float sum = 0.0f;
        for (int j = me % lanes; j < (unit < P4 ? 4 * columns : 0); j += lanes) sum += by_psi[unit * STRIDE + j];
        sum = over_lanes(sum, lanes);
        if (me % lanes == 0 && unit < P4) g[W4 + P4 * P3 + unit] = sum;
      }
      __syncthreads();
      transposed<P3, P4>(p + W4, by_psi, e, columns);
      unnormalise<P3>(e, c, c, often, total, p + W4 - 2 * P3, g + W4 - 2 * P3, inverses, P1 + P2, columns, key, s.drop);
      activate(b, e, p + W3 - 2 * P2, P2, P1, columns, key, s.drop);
      outer<P2, P3, 4>(c, e, g + W3, columns);
      __syncthreads();
      transposed<P2, P3>(p + W3, c, e, columns);
      unnormalise<P2>(e, b, e, often, total, p + W3 - 2 * P2, g + W3 - 2 * P2, inverses, P1, columns, key, s.drop);
      activate(a, b, p + W2 - 2 * P1, P1, 0, columns, key, s.drop);
      outer<P1, P2, 8>(e, b, g + W2, columns);
      __syncthreads();
      transposed<P1, P2>(p + W2, e, b, columns);
      unnormalise<P1>(b, a, a, often, total, p + W2 - 2 * P1, g + W2 - 2 * P1, inverses, 0, columns, key, s.drop);
      outer<INPUTS, P1, 1>(a, x, g + W1, columns);
      __syncthreads();

      // Adam with an L2 term.
      const float rate = rates[2 * (taken < last_rate ? taken : last_rate)];
      const float root = rates[2 * (taken < last_rate ? taken : last_rate) + 1];
#pragma unroll 4
      for (int k = 4 * me; k < SIZE; k += 4 * THREADS) {
        const float4 by = load(g + k), m4 = load(first + k), v4 = load(second + k), now = load(p + k);
        float m[4], v[4], next[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
          const float slope = at(by, n) + s.decay * at(now, n);
          m[n] = s.b1 * at(m4, n) + (1.0f - s.b1) * slope;
          v[n] = s.b2 * at(v4, n) + (1.0f - s.b2) * slope * slope;
          next[n] = at(now, n) - rate * m[n] / (sqrtf(v[n]) * root + 1e-8f);
        }
        *reinterpret_cast<float4*>(first + k) = make_float4(m[0], m[1], m[2], m[3]);
        *reinterpret_cast<float4*>(second + k) = make_float4(v[0], v[1], v[2], v[3]);
        *reinterpret_cast<float4*>(p + k) = make_float4(next[0], next[1], next[2], next[3]);
      }
      taken++;
      __syncthreads();
    }
    epoch++;
    if (!finite) break;

    // Validation with running statistics.
    product<INPUTS, P1>(p + W1, whole_x, a, all);
    settled(a, p + W2 - 2 * P1, running, P1, 0, all, s.epsilon);
    product<P1, P2>(p + W2, a, b, all);
    settled(b, p + W3 - 2 * P2, running, P2, P1, all, s.epsilon);
    product<P2, P3>(p + W3, b, c, all);
    settled(c, p + W4 - 2 * P3, running, P3, P1 + P2, all, s.epsilon);
    product<P3, P4>(p + W4, c, psi, all, p + W4 + P4 * P3);
    float loss = 0.0f;
    for (int k = me; k < held; k += THREADS) {
      float one = error(psi, whole_target, checks[k] >> 16, checks[k] & 0xFFFF);
      loss += one * one;
    }
    loss = over_block(loss, small) / (held > 0 ? held : 1);
    waited++;
    if (loss < best) {
      best = loss;
      waited = 0;
      for (int k = me; k < SIZE; k += THREADS) best_p[k] = p[k];
      for (int k = me; k < 2 * UNITS; k += THREADS) best_running[k] = running[k];
    }
    __syncthreads();
  }
  if (me == 0) epochs[run] = epoch, losses[run] = best;
}
