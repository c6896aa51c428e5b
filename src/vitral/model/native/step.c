/* Logits of the next token, and the choice of it, for a model of `vitral.model` in float32.

   A model is an array of numbers (`enum number`) and an array of pointers to its tensors (`enum array`), which are read
   where PyTorch has them: matrices lie [out][in], and nothing of them is copied. The caller gives all memory. `step.py`
   makes the arguments.

   Every sum has one order, which depends on its length only: eight partial sums over every eighth term, then a tree.
   So the logits of a position have the same bits whether it is read alone or in a block, with other rows or without. */

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifndef VITRAL_SOURCE
#define VITRAL_SOURCE ""
#endif

#if defined(__x86_64__) && defined(__linux__) && !defined(VITRAL_ONE_TARGET)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define WIDE __attribute__((target("arch=x86-64-v4")))
#define HAS_WIDE __builtin_cpu_supports("x86-64-v4")
#else
#define FOR_EACH_PROCESSOR
#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define WIDE
#define HAS_WIDE 1
#endif
#endif
#ifdef WIDE
#include <immintrin.h>
#endif
#ifndef VITRAL_ALONE
#define VITRAL_ALONE (1 << 14) /* multiplications for which one thread is enough */
#endif
#define INLINE static inline __attribute__((always_inline))
#define EXPORTED __attribute__((visibility("default")))

/* ---- The model, as the caller describes it ---- */

enum number { D_MODEL, LAYERS, HEADS, KV_HEADS, D_HEAD, D_FF, VOCAB, NORM_PLACE, NORM_KIND, RESIDUAL, PARALLEL, MIXER,
              FEED_FORWARD, FINAL_NORM, ADAPTIVE, TURNING, INTERLEAVED, REACH, JOINT, FACTORS_DIFFER, NUMBERS };
enum layer_number { WINDOW, PREFIX, LAYER_NUMBERS };
enum array { EPSILON, EMBEDDING, PLACED, COSINES, SINES, SLOPES, BY_DISTANCE, FINAL_GAIN, FINAL_BIAS, HEAD, HEAD_BIAS,
             ARRAYS };
enum layer_array { MIX_GAIN, MIX_NORM_BIAS, FEED_GAIN, FEED_NORM_BIAS, MIX_IN, MIX_IN_BIAS, MIX_OUT, MIX_OUT_BIAS,
                   FACTORS, GATE, GATE_BIAS, UP, UP_BIAS, DOWN, DOWN_BIAS, LAYER_ARRAYS };
enum place { NO_NORM, PRE_NORM, POST_NORM };
enum kind { LAYERNORM, RMSNORM };
enum mixer { NO_MIXER, ATTENTION, LSTM };
enum feed { NO_FEED, RELU, SQUARED_RELU, GELU, GELU_TANH, SWIGLU };
enum { BLOCK = 64 };   /* vectors that are read together, so that a weight in the cache serves them all */
enum { AHEAD = 4096 }; /* bytes between a weight that is used and one that is fetched */
enum { NO_CHOICE = -1, UNKNOWN_TOKEN = -2 };

typedef struct {
  const int64_t *n, *layer_numbers;
  const float *const *a;
  float epsilon;
} model_t;

INLINE const float *of_layer(const model_t *m, int64_t layer, int which) {
  return m->a[ARRAYS + layer * LAYER_ARRAYS + which];
}

/* ---- Vectors of eight numbers ---- */

typedef float v8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));
typedef float v4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i4 __attribute__((vector_size(16)));

/* Four lanes of two vectors of four: Clang has one name for it, every GCC the other. */
#ifdef __clang__
#define LANES(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define LANES(a, b, ...) __builtin_shuffle(a, b, (i4){__VA_ARGS__})
#endif

INLINE v8 load(const float *p) { return *(const v8u *)p; }
INLINE void store(float *p, v8 v) { *(v8u *)p = v; }
INLINE v8 all(float x) { return (v8){x, x, x, x, x, x, x, x}; }
INLINE v8 load_some(const float *p, int64_t count, float rest) {
  float eight[8] = {rest, rest, rest, rest, rest, rest, rest, rest};
  for (int64_t i = 0; i < count; i++) eight[i] = p[i];
  return load(eight);
}
INLINE void store_some(float *p, v8 v, int64_t count) {
  for (int64_t i = 0; i < count; i++) p[i] = v[i];
}
INLINE v8 choose8(i8 where, v8 yes, v8 no) { return (v8)((where & (i8)yes) | (~where & (i8)no)); }
INLINE v8 larger(v8 a, v8 b) { return choose8((i8)(a > b), a, b); }
INLINE v8 smaller(v8 a, v8 b) { return choose8((i8)(a < b), a, b); }

/* The two halves of the tree: lanes 0 + 4, 1 + 5, 2 + 6, 3 + 7; then of those 0 + 2 and 1 + 3; then both. */
INLINE v4 halves(v8 v) {
  v4 low, high;
  memcpy(&low, &v, 16);
  memcpy(&high, (const char *)&v + 16, 16);
  return low + high;
}
INLINE float sum(v8 v) {
  v4 h = halves(v);
  return (h[0] + h[2]) + (h[1] + h[3]);
}
INLINE v4 sums(v8 a, v8 b, v8 c, v8 d) {
  v4 h0 = halves(a), h1 = halves(b), h2 = halves(c), h3 = halves(d);
  v4 first = LANES(h0, h1, 0, 4, 1, 5) + LANES(h0, h1, 2, 6, 3, 7);
  v4 second = LANES(h2, h3, 0, 4, 1, 5) + LANES(h2, h3, 2, 6, 3, 7);
  return LANES(first, second, 0, 1, 4, 5) + LANES(first, second, 2, 3, 6, 7);
}
INLINE float largest(v8 v) {
  float most = v[0];
  for (int i = 1; i < 8; i++) most = v[i] > most ? v[i] : most;
  return most;
}

/* e^x: x = n ln 2 + r, a polynomial in r (relative error 3e-9 before rounding), and n added to the exponent. */
INLINE v8 exp8(v8 x) {
  v8 within = smaller(larger(x, all(-87.0f)), all(88.0f));
  v8 shifted = within * all(1.44269504f) + all(12582912.0f); /* 1.5 · 2^23 rounds to a whole number */
  v8 n = shifted - all(12582912.0f);
  v8 r = (within - n * all(0.693359375f)) - n * all(-2.12194440e-4f);
  v8 q = all(1.381446674e-03f);
  q = q * r + all(8.368780429e-03f);
  q = q * r + all(4.166839422e-02f);
  q = q * r + all(1.666652011e-01f);
  q = q * r + all(4.999999341e-01f);
  v8 y = (q * r) * r + r + all(1.0f);
  y = (v8)((i8)y + (((i8)shifted - (i8)all(12582912.0f)) << 23));
  y = choose8((i8)(x < all(-87.0f)), all(0.0f), y);
  y = choose8((i8)(x > all(88.0f)), all(INFINITY), y);
  return choose8((i8)(x == x), y, x); /* NaN stays */
}

/* x Φ(x): up to |x| = √2 by erf, a polynomial in x²; beyond by erfc = e^-g, g a polynomial in |x|. */
INLINE v8 gelu8(v8 x) {
  v8 t = x * all(0.70710678f), s = t * t, size = choose8((i8)(t < all(0.0f)), -t, t);
  v8 near = all(7.853860988e-05f);
  near = near * s + all(-8.010193515e-04f);
  near = near * s + all(5.188327673e-03f);
  near = near * s + all(-2.685381193e-02f);
  near = near * s + all(1.128358515e-01f);
  near = near * s + all(-3.761262582e-01f);
  near = near * s + all(1.128379166e+00f);
  v8 u = smaller(size, all(5.0f)), far = all(2.168675645e-05f);
  far = far * u + all(-4.413352117e-04f);
  far = far * u + all(4.204555772e-03f);
  far = far * u + all(-2.520823933e-02f);
  far = far * u + all(1.084185481e-01f);
  far = far * u + all(6.332199220e-01f);
  far = far * u + all(1.129578409e+00f);
  far = far * u + all(-1.880366831e-04f);
  v8 tail = choose8((i8)(size > all(5.0f)), all(0.0f), exp8(-far));
  v8 twice = choose8((i8)(size < all(1.0f)), all(1.0f) + t * near, choose8((i8)(t < all(0.0f)), tail, all(2.0f) - tail));
  v8 y = all(0.5f) * x * twice;
  return choose8((i8)(x == x), y, x);
}
INLINE v8 sigmoid8(v8 x) { return all(1.0f) / (all(1.0f) + exp8(-x)); }
INLINE v8 gelu_tanh8(v8 x) { /* x/2 (1 + tanh z) = x σ(2z) */
  return x * sigmoid8(all(1.59576912f) * (x + all(0.044715f) * x * x * x));
}
INLINE v8 tanh8(v8 x) { return all(2.0f) * sigmoid8(all(2.0f) * x) - all(1.0f); }

/* ---- Threads that share the work of a call ---- */

/* Work is a range of items, cut into pieces. Each thread has a share of the pieces, the same ones each time, so that a
   core finds its part of the weights in its own cache; then it takes what is left of others' shares. So the caller waits
   only for pieces that somebody has begun. Who does a piece changes no number. */
enum { MOST_THREADS = 64, PIECES = 16, SPINS = 1 << 14, PATIENCE = 2000000 }; /* pieces of a thread; ns */
typedef void work_t(const void *job, int thread, int64_t from, int64_t to);
typedef struct {
  _Alignas(64) uint64_t left; /* number of the work · 2^32 + first piece · 2^16 + end: pieces that nobody has begun */
} share_t;
typedef struct {
  share_t shares[MOST_THREADS];
  _Alignas(64) uint64_t number; /* of the current work; ENDED: there will be none */
  _Alignas(64) int64_t finished;
  _Alignas(64) work_t *work; /* what follows is read only by who has a piece */
  const void *job;
  int64_t items, piece;
  int threads, made, met, is_alone; /* helpers that were made, and that have begun */
  pthread_t helpers[MOST_THREADS];
} team_t;
static const uint64_t ENDED = UINT64_MAX;

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_in_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t begin_piece(share_t *share) {
  uint64_t left = __atomic_load_n(&share->left, __ATOMIC_ACQUIRE);
  while ((left >> 16 & 0xFFFF) < (left & 0xFFFF))
    if (__atomic_compare_exchange_n(&share->left, &left, left + 0x10000, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return (int64_t)(left >> 16 & 0xFFFF);
  return -1;
}

static void take_part(team_t *team, int thread) {
  int64_t done = 0;
  for (int i = 0; i < team->threads; i++)
    for (int64_t piece; (piece = begin_piece(&team->shares[(thread + i) % team->threads])) >= 0; done++) {
      int64_t from = piece * team->piece, to = from + team->piece;
      team->work(team->job, thread, from, to < team->items ? to : team->items);
    }
  if (done) __atomic_fetch_add(&team->finished, done, __ATOMIC_ACQ_REL);
}

static void *help(void *given) {
  team_t *team = given;
  int thread = __atomic_add_fetch(&team->met, 1, __ATOMIC_RELAXED);
  for (uint64_t seen = 0, number;; seen = number) {
    for (int waited = 0; (number = __atomic_load_n(&team->number, __ATOMIC_ACQUIRE)) == seen;)
      if (waited++ < SPINS) pause_briefly();
      else sched_yield();
    if (number == ENDED) return NULL;
    take_part(team, thread);
  }
}

static void gather(team_t *team, int64_t threads) {
  memset(team, 0, sizeof *team);
  team->threads = threads < MOST_THREADS ? (int)threads : MOST_THREADS;
#ifndef _WIN32
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are the caller's */
  while (team->made < team->threads - 1 && pthread_create(&team->helpers[team->made], NULL, help, team) == 0)
    team->made++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
  team->is_alone = team->made == 0;
}

static void part(team_t *team) {
  __atomic_store_n(&team->number, ENDED, __ATOMIC_RELEASE);
  for (int i = 0; i < team->made; i++) pthread_join(team->helpers[i], NULL);
  team->made = 0, team->is_alone = 1;
}

/* Have a work done by all; pieces are as large as a multiple of `unit` items. */
static void share_out(team_t *team, work_t *work, const void *job, int64_t items, int64_t unit) {
  if (team->is_alone) {
    work(job, 0, 0, items);
    return;
  }
  int64_t wanted = (int64_t)team->threads * PIECES, units = (items + unit - 1) / unit;
  int64_t piece = (units + wanted - 1) / wanted * unit, pieces = (items + piece - 1) / piece;
  team->work = work, team->job = job, team->items = items, team->piece = piece, team->finished = 0;
  uint64_t number = team->number + 1;
  for (int i = 0; i < team->threads; i++) {
    uint64_t from = (uint64_t)(pieces * i / team->threads), to = (uint64_t)(pieces * (i + 1) / team->threads);
    __atomic_store_n(&team->shares[i].left, number << 32 | from << 16 | to, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&team->number, number, __ATOMIC_RELEASE);
  take_part(team, 0);
  int waited = 0;
  int64_t since = 0;
  for (; __atomic_load_n(&team->finished, __ATOMIC_ACQUIRE) < pieces; waited++) {
    pause_briefly();
    if (waited % 1024 == 1023) since = since ? since : now_in_ns(), sched_yield();
  }
  if (since && now_in_ns() - since > PATIENCE) part(team); /* another program has the helper's core */
}

/* ---- Products with a matrix ---- */

/* Ask for a cache line, which may lie behind the end of what is read: a processor ignores what it cannot fetch. */
INLINE void fetch(uintptr_t place) { __builtin_prefetch((const void *)place); }

/* y[rows][outs] = x · wᵀ (+ bias) (+ y), a tile whose sums stay in registers; rows, outs and ahead are constants.
   With `ahead`, each step fetches as many bytes as it reads, so many bytes further on. */
INLINE void tile(const int rows, const int outs, const int ahead, const float *x, int64_t x_step, const float *w,
                 int64_t w_step, const float *bias, float *y, int64_t y_step, int64_t length, int add) {
  v8 sums_of[4][8];
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
    for (int j = 0; j < outs; j++) sums_of[i][j] = all(0.0f);
  int64_t k = 0;
  uintptr_t next = (uintptr_t)w + (uintptr_t)ahead;
  for (; k + 8 <= length; k += 8) {
    v8 each[4];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) each[i] = load(x + i * x_step + k);
    if (ahead) {
#pragma GCC unroll 4
      for (int j = 0; j < outs; j += 2) fetch(next + 32 * (uintptr_t)j);
      next += 32 * (uintptr_t)outs;
    }
#pragma GCC unroll 8
    for (int j = 0; j < outs; j++) {
      v8 weights = load(w + j * w_step + k);
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) sums_of[i][j] += each[i] * weights;
    }
  }
  if (k < length) {
    for (int j = 0; j < outs; j++) {
      v8 weights = load_some(w + j * w_step + k, length - k, 0.0f);
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++) sums_of[i][j] += load_some(x + i * x_step + k, length - k, 0.0f) * weights;
    }
  }
  if (rows == 4) { /* four sums at once, of four rows or of four columns */
#pragma GCC unroll 8
    for (int j = 0; j < outs; j++) {
      v4 made = sums(sums_of[0][j], sums_of[1][j], sums_of[2][j], sums_of[3][j]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        float one = bias ? made[i] + bias[j] : made[i], *out = y + i * y_step + j;
        *out = add ? one + *out : one;
      }
    }
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++) {
    float *out = y + i * y_step;
    int j = 0;
#pragma GCC unroll 2
    for (; j + 4 <= outs; j += 4) {
      v4 made = sums(sums_of[i][j], sums_of[i][j + 1], sums_of[i][j + 2], sums_of[i][j + 3]);
      if (bias) made += *(const v4u *)(bias + j);
      if (add) made += *(const v4u *)(out + j);
      *(v4u *)(out + j) = made;
    }
#pragma GCC unroll 4
    for (; j < outs; j++) {
      float made = sum(sums_of[i][j]);
      if (bias) made += bias[j];
      if (add) made += out[j];
      out[j] = made;
    }
  }
}

enum { UNIT = 24 }; /* columns of the least piece */

typedef struct {
  const float *x;
  int64_t rows, x_step;
  const float *w, *bias;
  float *y;
  int64_t y_step, length, outs;
  int add;
  float *packed; /* memory for x as the wide tile reads it; NULL where there is none */
} product_t;

INLINE void rows_of_product(const int rows, const int wide, const int ahead, const product_t *p, int64_t row,
                            int64_t from, int64_t to) {
  const float *x = p->x + row * p->x_step;
  float *y = p->y + row * p->y_step;
  int64_t out = from;
  for (; out + wide <= to; out += wide)
    tile(rows, wide, ahead, x, p->x_step, p->w + out * p->length, p->length, p->bias ? p->bias + out : NULL, y + out,
         p->y_step, p->length, p->add);
  for (; out < to; out++)
    tile(rows, 1, 0, x, p->x_step, p->w + out * p->length, p->length, p->bias ? p->bias + out : NULL, y + out,
         p->y_step, p->length, p->add);
}

#ifdef WIDE
/* The same sums with vectors of sixteen numbers: eight of one row of x and eight of the next, `packed` side by side. */
enum { PAIRS = 3, PANEL = 8 }; /* a tile has 24 of the 32 registers for its sums */

static void pack(const product_t *p) {
  float *out = p->packed;
  int64_t rows = p->rows;
  for (int64_t row = 0; row < rows; row += 2)
    for (int64_t k = 0; k < p->length; k += 8, out += 16)
      for (int64_t half = 0; half < 2; half++) {
        const float *x = p->x + (row + half) * p->x_step + k;
        int64_t count = row + half < rows ? p->length - k : 0;
        store(out + 8 * half, count >= 8 ? load(x) : load_some(x, count, 0.0f));
      }
}

/* Eight sums of each of two rows, by the tree of `sums`: those of the first row, then those of the second. */
WIDE INLINE __m512 wide_sums(const __m512 *of) {
  __m512 half[4], quarter[2];
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++)
    half[j] = _mm512_shuffle_f32x4(of[2 * j], of[2 * j + 1], 0x88) + _mm512_shuffle_f32x4(of[2 * j], of[2 * j + 1], 0xDD);
#pragma GCC unroll 2
  for (int j = 0; j < 2; j++)
    quarter[j] = _mm512_shuffle_ps(half[2 * j], half[2 * j + 1], 0x44) +
                 _mm512_shuffle_ps(half[2 * j], half[2 * j + 1], 0xEE);
  __m512 made = _mm512_shuffle_ps(quarter[0], quarter[1], 0x88) + _mm512_shuffle_ps(quarter[0], quarter[1], 0xDD);
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), made);
}

/* Some pairs of rows and eight columns from `out` on, of which those of `columns` are written. */
WIDE INLINE void wide_tile(const int pairs, const product_t *p, int64_t pair, int64_t rows, int64_t out,
                           __mmask8 columns, uintptr_t next, int fetches) {
  __m512 sums_of[PAIRS][PANEL];
  int64_t length = p->length, k = 0, x_step = (length + 7) / 8 * 16;
  const float *w = p->w + out * length, *x = p->packed + pair * x_step;
#pragma GCC unroll 3
  for (int i = 0; i < pairs; i++)
#pragma GCC unroll 8
    for (int j = 0; j < PANEL; j++) sums_of[i][j] = _mm512_setzero_ps();
  for (; k + 8 <= length; k += 8) {
    __m512 each[PAIRS];
#pragma GCC unroll 3
    for (int i = 0; i < pairs; i++) each[i] = _mm512_loadu_ps(x + i * x_step + 2 * k);
    for (int i = 0; i < fetches; i++, next += 64) fetch(next);
#pragma GCC unroll 8
    for (int j = 0; j < PANEL; j++) {
      __m512 weights = _mm512_broadcast_f32x8(_mm256_loadu_ps(w + j * length + k));
#pragma GCC unroll 3
      for (int i = 0; i < pairs; i++) sums_of[i][j] = _mm512_fmadd_ps(each[i], weights, sums_of[i][j]);
    }
  }
  if (k < length) {
#pragma GCC unroll 8
    for (int j = 0; j < PANEL; j++) {
      __m512 weights = _mm512_broadcast_f32x8((__m256)load_some(w + j * length + k, length - k, 0.0f));
#pragma GCC unroll 3
      for (int i = 0; i < pairs; i++)
        sums_of[i][j] = _mm512_fmadd_ps(_mm512_loadu_ps(x + i * x_step + 2 * k), weights, sums_of[i][j]);
    }
  }
#pragma GCC unroll 3
  for (int i = 0; i < pairs; i++) {
    __m512 both = wide_sums(sums_of[i]);
    if (p->bias) {
      __m512 bias = _mm512_broadcast_f32x8(_mm256_loadu_ps(p->bias + out));
      both += bias;
    }
    int64_t row = 2 * (pair + i);
    float *y = p->y + row * p->y_step + out;
    __m256 made = _mm512_castps512_ps256(both);
    if (p->add) made += _mm256_maskz_loadu_ps(columns, y);
    _mm256_mask_storeu_ps(y, columns, made);
    if (row + 1 == rows) continue;
    y += p->y_step, made = _mm512_extractf32x8_ps(both, 1);
    if (p->add) made += _mm256_maskz_loadu_ps(columns, y);
    _mm256_mask_storeu_ps(y, columns, made);
  }
}

/* Some columns, at least eight from the first on, of all rows. Each panel of the matrix serves groups of pairs that are
   as equal as can be, and the next one is fetched meanwhile. The last panel begins earlier if it is not whole. */
WIDE static void wide_product(const product_t *p, int64_t from, int64_t to) {
  int64_t rows = p->rows, pairs = (rows + 1) / 2, groups = (pairs + PAIRS - 1) / PAIRS;
  int64_t lines = p->length / 2; /* of a panel; a tile takes length / 8 steps */
  int fetches = (int)((4 + groups - 1) / groups);
  for (int64_t out = from; out < to; out += PANEL) {
    int64_t begin = out + PANEL <= to ? out : to - PANEL;
    __mmask8 columns = (__mmask8)(0xFF << (out - begin));
    uintptr_t next = (uintptr_t)(p->w + (out + PANEL) * p->length);
    for (int64_t group = 0; group < groups; group++, next += (uintptr_t)(lines * 64 / groups)) {
      int64_t pair = pairs * group / groups, count = pairs * (group + 1) / groups - pair;
      if (count == 3) wide_tile(3, p, pair, rows, begin, columns, next, fetches);
      if (count == 2) wide_tile(2, p, pair, rows, begin, columns, next, fetches);
      if (count == 1) wide_tile(1, p, pair, rows, begin, columns, next, fetches);
    }
  }
}
#endif

/* Some columns of all rows; a panel of the matrix stays in the first cache while every row passes it, and the next one is
   fetched meanwhile. */
FOR_EACH_PROCESSOR void vitral_step_columns(const product_t *p, int64_t from, int64_t to) {
  int64_t rows = p->rows;
  if (rows == 1) {
    rows_of_product(1, 4, AHEAD, p, 0, from, to);
    return;
  }
  int64_t panel = 12, bytes = panel * p->length * (int64_t)sizeof(float), share = (bytes / rows + 63) / 64 * 64;
  for (; from < to; from += panel) {
    int64_t end = from + panel < to ? from + panel : to, row = 0;
    uintptr_t next = (uintptr_t)(p->w + from * p->length) + (uintptr_t)bytes;
    for (; row + 4 <= rows; row += 4) {
      if (end < to)
        for (int64_t i = row * share; i < (row + 4) * share; i += 64) fetch(next + (uintptr_t)i);
      rows_of_product(4, 3, 0, p, row, from, end);
    }
    if (rows - row == 3) rows_of_product(3, 3, 0, p, row, from, end);
    if (rows - row == 2) rows_of_product(2, 3, 0, p, row, from, end);
    if (rows - row == 1) rows_of_product(1, 3, 0, p, row, from, end);
  }
}

static void columns(const void *job, int thread, int64_t from, int64_t to) {
  (void)thread;
  const product_t *p = job;
#ifdef WIDE
  if (p->packed) {
    wide_product(p, from, to);
    return;
  }
#endif
  vitral_step_columns(p, from, to);
}

typedef struct {
  float *x, *read, *before, *wide, *z, *hidden, *gate, *packed, *scores;
  int64_t num_scores; /* of each thread */
  team_t *team;
} scratch_t;

static void multiply(const scratch_t *s, const float *x, int64_t rows, int64_t length, const float *w,
                     const float *bias, float *y, int64_t outs, int add) {
  product_t product = {x, rows, length, w, bias, y, outs, length, outs, add, NULL};
#ifdef WIDE
  if (HAS_WIDE && rows > 1 && outs >= PANEL) {
    product.packed = s->packed;
    pack(&product);
  }
#endif
  if (rows * length * outs < VITRAL_ALONE) columns(&product, 0, 0, outs);
  else share_out(s->team, columns, &product, outs, UNIT);
}

/* ---- What is done to each vector ---- */

/* Row by row, (x - mean) / √(variance + ε) · gain + bias, or x / √(mean square + ε) · gain. */
FOR_EACH_PROCESSOR void vitral_step_norm(const float *x, float *y, int64_t rows, int64_t width, int kind, float epsilon,
                                         const float *gain, const float *bias) {
  int64_t whole = width - width % 8;
  for (int64_t row = 0; row < rows; row++, x += width, y += width) {
    v8 mean = all(0.0f), squares = all(0.0f);
    if (kind == LAYERNORM) {
      for (int64_t i = 0; i < whole; i += 8) mean += load(x + i);
      if (whole < width) mean += load_some(x + whole, width - whole, 0.0f);
      mean = all(sum(mean) / (float)width);
    }
    for (int64_t i = 0; i < whole; i += 8) {
      v8 away = load(x + i) - mean;
      squares += away * away;
    }
    if (whole < width) {
      v8 away = load_some(x + whole, width - whole, mean[0]) - mean;
      squares += away * away;
    }
    v8 factor = all(1.0f / sqrtf(sum(squares) / (float)width + epsilon));
    for (int64_t i = 0; i < width; i += 8) {
      int64_t count = width - i < 8 ? width - i : 8;
      v8 made = ((count == 8 ? load(x + i) : load_some(x + i, count, 0.0f)) - mean) * factor;
      if (count == 8) {
        if (gain) made *= load(gain + i);
        if (bias) made += load(bias + i);
        store(y + i, made);
      } else {
        if (gain) made *= load_some(gain + i, count, 0.0f);
        if (bias) made += load_some(bias + i, count, 0.0f);
        store_some(y + i, made, count);
      }
    }
  }
}

INLINE v8 activated(v8 x, const float *gate, int64_t count, int kind) {
  if (kind == GELU) return gelu8(x);
  if (kind == GELU_TANH) return gelu_tanh8(x);
  if (kind == SWIGLU) {
    v8 g = count == 8 ? load(gate) : load_some(gate, count, 0.0f);
    return g * sigmoid8(g) * x;
  }
  v8 positive = choose8((i8)(x < all(0.0f)), all(0.0f), x);
  return kind == RELU ? positive : positive * positive;
}

INLINE void activate(float *x, const float *gate, int64_t count, const int kind) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(x + i, activated(load(x + i), gate + i, 8, kind));
  if (i < count) store_some(x + i, activated(load_some(x + i, count - i, 0.0f), gate + i, count - i, kind), count - i);
}

FOR_EACH_PROCESSOR void vitral_step_activate(float *x, const float *gate, int64_t count, int kind) {
  if (kind == GELU) activate(x, x, count, GELU);
  if (kind == GELU_TANH) activate(x, x, count, GELU_TANH);
  if (kind == SWIGLU) activate(x, gate, count, SWIGLU);
  if (kind == RELU) activate(x, x, count, RELU);
  if (kind == SQUARED_RELU) activate(x, x, count, SQUARED_RELU);
}

/* ---- Attention ---- */

typedef struct {
  const float *q, *keys, *values;  /* one query; the keys and values of one head, [position][width] */
  float *z, *scores;
  int64_t width, now, from, to;    /* the query's position; the positions that it sees, to is not one of them */
  int adaptive;
  const float *slope, *by_distance;
  int64_t reach;
} query_t;

INLINE void weigh(const int pieces, const float *weights, const float *values, int64_t count, int64_t width, float *z) {
  v8 total[8];
#pragma GCC unroll 8
  for (int j = 0; j < pieces; j++) total[j] = all(0.0f);
  for (int64_t t = 0; t < count; t++, values += width) {
    v8 weight = all(weights[t]);
#pragma GCC unroll 8
    for (int j = 0; j < pieces; j++) total[j] += weight * load(values + 8 * j);
  }
#pragma GCC unroll 8
  for (int j = 0; j < pieces; j++) store(z + 8 * j, total[j]);
}

FOR_EACH_PROCESSOR void vitral_step_attend(const query_t *p) {
  int64_t count = p->to - p->from, width = p->width;
  float *scores = p->scores;
  const float *keys = p->keys + p->from * width, *values = p->values + p->from * width;
  product_t product = {p->q, 1, width, keys, NULL, scores, count, width, count, 0, NULL};
  int64_t read = 0;
  for (; read + 8 <= count; read += 8) { /* the values are fetched meanwhile */
    for (int64_t i = 0; i < 8 * width; i += 16) fetch((uintptr_t)(values + read * width + i));
    rows_of_product(1, 8, 0, &product, 0, read, read + 8);
  }
  rows_of_product(1, 8, 0, &product, 0, read, count);
  if (p->adaptive) { /* 1/σ of the visible scores; the usual factor where they count as equal (attention/scales.py) */
    double mean = 0, variance = 0;
    for (int64_t t = 0; t < count; t++) mean += scores[t];
    mean /= (double)count;
    for (int64_t t = 0; t < count; t++) variance += (scores[t] - mean) * (scores[t] - mean);
    variance /= (double)count;
    float factor = variance >= 1e-12 ? (float)(1.0 / sqrt(variance)) : 1.0f / sqrtf((float)width);
    for (int64_t t = 0; t < count; t++) scores[t] *= factor;
  }
  if (p->slope)
    for (int64_t t = 0; t < count; t++) {
      int64_t distance = p->now - p->from - t;
      scores[t] -= *p->slope * (float)(distance < 0 ? -distance : distance);
    }
  if (p->by_distance)
    for (int64_t t = 0; t < count; t++) {
      int64_t distance = p->now - p->from - t;
      distance = distance > p->reach ? p->reach : distance < -p->reach ? -p->reach : distance;
      scores[t] += p->by_distance[distance + p->reach];
    }
  int64_t padded = (count + 7) / 8 * 8;
  for (int64_t t = count; t < padded; t++) scores[t] = -INFINITY;
  v8 most = load(scores), total = all(0.0f);
  for (int64_t t = 8; t < padded; t += 8) most = larger(load(scores + t), most);
  most = all(largest(most));
  for (int64_t t = 0; t < padded; t += 8) {
    v8 weight = exp8(load(scores + t) - most);
    total += weight;
    store(scores + t, weight);
  }
  float share = 1.0f / sum(total);
  int64_t at = 0;
  for (; at + 64 <= width; at += 64) weigh(8, scores, values + at, count, width, p->z + at);
  if (at + 32 <= width) weigh(4, scores, values + at, count, width, p->z + at), at += 32;
  if (at + 16 <= width) weigh(2, scores, values + at, count, width, p->z + at), at += 16;
  if (at + 8 <= width) weigh(1, scores, values + at, count, width, p->z + at), at += 8;
  for (; at < width; at++) {
    float one = 0;
    for (int64_t t = 0; t < count; t++) one += scores[t] * values[t * width + at];
    p->z[at] = one;
  }
  for (int64_t i = 0; i < width; i++) p->z[i] *= share;
}

static void rotate(const model_t *m, float *x, int64_t position) {
  int64_t turning = m->n[TURNING], half = turning / 2;
  const float *cosines = m->a[COSINES] + position * half, *sines = m->a[SINES] + position * half;
  for (int64_t i = 0; i < half; i++) {
    float *first = m->n[INTERLEAVED] ? x + 2 * i : x + i, *second = m->n[INTERLEAVED] ? first + 1 : first + half;
    float a = *first, b = *second;
    *first = a * cosines[i] - b * sines[i];
    *second = b * cosines[i] + a * sines[i];
  }
}

/* ---- A block of positions of some rows ---- */

typedef struct {
  float *const *cache;      /* keys and values, or hidden and cell state, of each layer */
  int64_t capacity;         /* positions of a row's keys */
  const int64_t *tokens;    /* [row][step] */
  int64_t step, first, rows, start, time; /* the first row is one of the cache's */
} block_t;

static int64_t largest_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Vectors that are read at once: a block, or all positions of a row that see later ones. */
static int64_t vectors_of(const int64_t *numbers, int64_t time) {
  return largest_of(BLOCK, numbers[JOINT] ? time : 0);
}

static int64_t mixed_width(const int64_t *n) {
  return n[MIXER] == LSTM ? 4 * n[D_MODEL] : (n[HEADS] + 2 * n[KV_HEADS]) * n[D_HEAD];
}

static int64_t take(scratch_t *s, float *memory, const int64_t *n, int64_t vectors, int64_t positions, int64_t threads) {
  int64_t longest = largest_of(n[D_FF], largest_of(n[HEADS] * n[D_HEAD], n[D_MODEL]));
  int64_t widths[] = {n[D_MODEL], n[D_MODEL], n[D_MODEL], mixed_width(n), largest_of(n[HEADS] * n[D_HEAD], n[D_MODEL]),
                      n[D_FF], n[FEED_FORWARD] == SWIGLU ? n[D_FF] : 0, (longest + 7) / 8 * 8};
  float **parts[] = {&s->x, &s->read, &s->before, &s->wide, &s->z, &s->hidden, &s->gate, &s->packed};
  int64_t used = 0;
  for (int i = 0; i < 8; i++) {
    if (memory) *parts[i] = memory + used;
    used += ((vectors + 1) / 2 * 2 * widths[i] + 15) / 16 * 16;
  }
  s->num_scores = (largest_of(positions, n[MIXER] == LSTM ? 4 * n[D_MODEL] : 0) + 8 + 15) / 16 * 16;
  if (memory) s->scores = memory + used;
  return used + threads * s->num_scores;
}

typedef struct {
  const model_t *m;
  const block_t *b;
  const scratch_t *s;
  int64_t layer;
} attention_t;

/* Some heads, counted through all rows, each with memory for the scores of one query. */
static void heads_of(const void *given, int thread, int64_t from_item, int64_t to_item) {
  const attention_t *job = given;
  const model_t *m = job->m;
  const block_t *b = job->b;
  const scratch_t *s = job->s;
  const int64_t *n = m->n, *own = m->layer_numbers + job->layer * LAYER_NUMBERS;
  int64_t width = n[D_HEAD], heads = n[HEADS], kv_heads = n[KV_HEADS], wide = mixed_width(n), end = b->start + b->time;
  for (int64_t item = from_item; item < to_item; item++) {
    int64_t row = item / heads, head = item % heads;
    int64_t at = ((b->first + row) * kv_heads + head / (heads / kv_heads)) * b->capacity * width;
    for (int64_t time = 0; time < b->time; time++) {
      int64_t vector = row * b->time + time, now = b->start + time;
      int64_t together = own[PREFIX] < end ? own[PREFIX] : end, to = now + 1 > together ? now + 1 : together;
      int64_t from = own[WINDOW] && own[WINDOW] <= now ? now + 1 - own[WINDOW] : 0;
      query_t query = {s->wide + vector * wide + head * width,
                       b->cache[2 * job->layer] + at,
                       b->cache[2 * job->layer + 1] + at,
                       s->z + (vector * heads + head) * width,
                       s->scores + thread * s->num_scores,
                       width,
                       now,
                       from,
                       to,
                       (int)n[ADAPTIVE],
                       m->a[SLOPES] ? m->a[SLOPES] + head : NULL,
                       m->a[BY_DISTANCE] ? m->a[BY_DISTANCE] + head * (2 * n[REACH] + 1) : NULL,
                       n[REACH]};
      vitral_step_attend(&query);
    }
  }
}

static void attend(const model_t *m, const block_t *b, const scratch_t *s, int64_t layer) {
  const int64_t *n = m->n;
  int64_t width = n[D_HEAD], heads = n[HEADS], kv_heads = n[KV_HEADS], wide = mixed_width(n);
  const float *factors = of_layer(m, layer, FACTORS);
  for (int64_t row = 0; row < b->rows; row++)
    for (int64_t time = 0; time < b->time; time++) {
      float *q = s->wide + (row * b->time + time) * wide, *k = q + heads * width, *v = k + kv_heads * width;
      int64_t position = b->start + time;
      if (n[TURNING])
        for (int64_t head = 0; head < heads + kv_heads; head++) rotate(m, q + head * width, position);
      for (int64_t head = 0; head < heads; head++)
        for (int64_t i = 0; i < width; i++) q[head * width + i] *= factors[n[FACTORS_DIFFER] * head];
      for (int64_t head = 0; head < kv_heads; head++) {
        int64_t at = (((b->first + row) * kv_heads + head) * b->capacity + position) * width;
        memcpy(b->cache[2 * layer] + at, k + head * width, (size_t)width * sizeof(float));
        memcpy(b->cache[2 * layer + 1] + at, v + head * width, (size_t)width * sizeof(float));
      }
    }
  attention_t job = {m, b, s, layer};
  int64_t items = b->rows * heads, work = items * b->time * (b->start + b->time) * width;
  if (work < VITRAL_ALONE) heads_of(&job, 0, 0, items);
  else share_out(s->team, heads_of, &job, items, 1);
}

/* The gates of one position: input, forget, candidate, output; `gates` has what x adds, `more` what the state adds. */
FOR_EACH_PROCESSOR void vitral_step_gates(const float *gates, const float *more, float *hidden, float *cell, float *out,
                                          int64_t width) {
  for (int64_t i = 0; i < width; i += 8) {
    int64_t count = width - i < 8 ? width - i : 8;
    v8 gate[4];
    for (int j = 0; j < 4; j++)
      gate[j] = load_some(gates + j * width + i, count, 0.0f) + load_some(more + j * width + i, count, 0.0f);
    v8 kept = sigmoid8(gate[1]) * load_some(cell + i, count, 0.0f) + sigmoid8(gate[0]) * tanh8(gate[2]);
    v8 made = sigmoid8(gate[3]) * tanh8(kept);
    store_some(cell + i, kept, count);
    store_some(hidden + i, made, count);
    store_some(out + i, made, count);
  }
}

/* An LSTM: z becomes the hidden states. `more` is memory for the part of the gates that comes from the state. */
static void recur(const model_t *m, const block_t *b, const scratch_t *s, int64_t layer, float *more) {
  int64_t width = m->n[D_MODEL];
  for (int64_t row = 0; row < b->rows; row++) {
    float *hidden = b->cache[2 * layer] + (b->first + row) * width;
    float *cell = b->cache[2 * layer + 1] + (b->first + row) * width;
    for (int64_t time = 0; time < b->time; time++) {
      int64_t vector = row * b->time + time;
      multiply(s, hidden, 1, width, of_layer(m, layer, MIX_OUT), of_layer(m, layer, MIX_OUT_BIAS), more, 4 * width, 0);
      vitral_step_gates(s->wide + vector * 4 * width, more, hidden, cell, s->z + vector * width, width);
    }
  }
}

static void normalise(const model_t *m, const float *x, float *y, int64_t vectors, const float *gain, const float *bias) {
  vitral_step_norm(x, y, vectors, m->n[D_MODEL], (int)m->n[NORM_KIND], m->epsilon, gain, bias);
}

static void mix(const model_t *m, const block_t *b, const scratch_t *s, int64_t layer, const float *read, int64_t vectors) {
  const int64_t *n = m->n;
  int64_t d = n[D_MODEL], wide = mixed_width(n);
  multiply(s, read, vectors, d, of_layer(m, layer, MIX_IN), of_layer(m, layer, MIX_IN_BIAS), s->wide, wide, 0);
  if (n[MIXER] == LSTM) {
    recur(m, b, s, layer, s->scores);
    for (int64_t i = 0; i < vectors * d; i++) s->x[i] = n[RESIDUAL] ? s->x[i] + s->z[i] : s->z[i];
    return;
  }
  attend(m, b, s, layer);
  multiply(s, s->z, vectors, n[HEADS] * n[D_HEAD], of_layer(m, layer, MIX_OUT), of_layer(m, layer, MIX_OUT_BIAS), s->x, d,
           (int)n[RESIDUAL]);
}

static void feed(const model_t *m, const scratch_t *s, int64_t layer, const float *read, int64_t vectors) {
  const int64_t *n = m->n;
  int64_t d = n[D_MODEL], ff = n[D_FF];
  multiply(s, read, vectors, d, of_layer(m, layer, UP), of_layer(m, layer, UP_BIAS), s->hidden, ff, 0);
  if (n[FEED_FORWARD] == SWIGLU)
    multiply(s, read, vectors, d, of_layer(m, layer, GATE), of_layer(m, layer, GATE_BIAS), s->gate, ff, 0);
  vitral_step_activate(s->hidden, s->gate, vectors * ff, (int)n[FEED_FORWARD]);
  multiply(s, s->hidden, vectors, ff, of_layer(m, layer, DOWN), of_layer(m, layer, DOWN_BIAS), s->x, d, (int)n[RESIDUAL]);
}

/* The stream after all blocks, in s->x [row][time][d_model]. */
static void run_blocks(const model_t *m, const block_t *b, const scratch_t *s) {
  const int64_t *n = m->n;
  int64_t d = n[D_MODEL], vectors = b->rows * b->time;
  for (int64_t row = 0; row < b->rows; row++)
    for (int64_t time = 0; time < b->time; time++) {
      float *x = s->x + (row * b->time + time) * d;
      const float *embedding = m->a[EMBEDDING] + b->tokens[(b->first + row) * b->step + time] * d;
      const float *placed = m->a[PLACED] ? m->a[PLACED] + (b->start + time) * d : NULL;
      for (int64_t i = 0; i < d; i++) x[i] = placed ? embedding[i] + placed[i] : embedding[i];
    }
  for (int64_t layer = 0; layer < n[LAYERS]; layer++) {
    const float *stream = s->x;
    if (n[PARALLEL]) {
      memcpy(s->before, s->x, (size_t)(vectors * d) * sizeof(float));
      stream = s->before;
    }
    const float *gain = of_layer(m, layer, MIX_GAIN), *bias = of_layer(m, layer, MIX_NORM_BIAS);
    if (n[MIXER] != NO_MIXER) {
      if (n[NORM_PLACE] == PRE_NORM) normalise(m, s->x, s->read, vectors, gain, bias);
      mix(m, b, s, layer, n[NORM_PLACE] == PRE_NORM ? s->read : s->x, vectors);
      if (n[NORM_PLACE] == POST_NORM) normalise(m, s->x, s->x, vectors, gain, bias);
    }
    gain = of_layer(m, layer, FEED_GAIN), bias = of_layer(m, layer, FEED_NORM_BIAS);
    if (n[FEED_FORWARD] != NO_FEED) {
      if (n[NORM_PLACE] == PRE_NORM) normalise(m, stream, s->read, vectors, gain, bias);
      feed(m, s, layer, n[NORM_PLACE] == PRE_NORM ? s->read : stream, vectors);
      if (n[NORM_PLACE] == POST_NORM) normalise(m, s->x, s->x, vectors, gain, bias);
    }
  }
}

/* The logits [row][vocab] after the last position of these. */
static void head(const model_t *m, const block_t *b, const scratch_t *s, float *logits) {
  int64_t d = m->n[D_MODEL];
  for (int64_t row = 0; row < b->rows; row++)
    memcpy(s->read + row * d, s->x + (row * b->time + b->time - 1) * d, (size_t)d * sizeof(float));
  if (m->n[FINAL_NORM]) normalise(m, s->read, s->read, b->rows, m->a[FINAL_GAIN], m->a[FINAL_BIAS]);
  multiply(s, s->read, b->rows, d, m->a[HEAD], m->a[HEAD_BIAS], logits, m->n[VOCAB], 0);
}

/* Read `time` more tokens of each row in blocks, and give the logits of the next one, [row][vocab]. */
static void read_rows(const model_t *m, const block_t *whole, float *logits, float *memory, team_t *team) {
  int64_t most = vectors_of(m->n, whole->time), together = largest_of(1, m->n[JOINT] ? most / whole->time : most);
  scratch_t s = {.team = team};
  take(&s, memory, m->n, most, whole->start + whole->time, team->threads);
  for (int64_t row = 0; row < whole->rows; row += together) {
    block_t b = *whole;
    b.first += row, b.rows = whole->rows - row < together ? whole->rows - row : together;
    for (int64_t done = 0; done < whole->time; done += b.time) {
      int64_t left = whole->time - done, at_once = largest_of(1, most / b.rows);
      b.tokens = whole->tokens + done, b.start = whole->start + done, b.time = left < at_once ? left : at_once;
      run_blocks(m, &b, &s);
    }
    head(m, &b, &s, logits + row * m->n[VOCAB]);
  }
}

static int known(const model_t *m, const block_t *b) {
  for (int64_t row = 0; row < b->rows; row++)
    for (int64_t time = 0; time < b->time; time++) {
      int64_t token = b->tokens[(b->first + row) * b->step + time];
      if (token < 0 || token >= m->n[VOCAB]) return 0;
    }
  return 1;
}

/* ---- The choice of a token: `decoding/sampling.py`, in float64 ---- */

typedef struct {
  double temperature, top_k, top_p, min_p, penalty; /* top_k 0, top_p 1, min_p 0 and penalty 1 are off */
} sampling_t;

static const double ROUNDING = 1e-12;

/* Keep the k largest; ties go to the lower ids. `work` is memory for as many numbers as there are tokens. */
static void keep_top_k(double *logits, int64_t vocab, int64_t k, double *work) {
  memcpy(work, logits, (size_t)vocab * sizeof(double));
  int64_t low = 0, high = vocab - 1;
  while (low < high) { /* Hoare's selection of the k-th largest */
    double pivot = work[(low + high) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (work[i] > pivot) i++;
      while (work[j] < pivot) j--;
      if (i <= j) {
        double other = work[i];
        work[i++] = work[j], work[j--] = other;
      }
    }
    if (k - 1 <= j) high = j;
    else if (k - 1 >= i) low = i;
    else break;
  }
  double least = work[k - 1];
  for (int64_t i = 0; i < vocab; i++) k -= logits[i] > least;
  for (int64_t i = 0; i < vocab; i++) {
    int equal = logits[i] == least;
    if (!(logits[i] > least) && !(equal && k > 0)) logits[i] = -INFINITY;
    k -= equal;
  }
}

/* Whether token a comes before token b: a larger logit, or an equal one and a lower id. */
static int is_before(const double *logits, double a, double b) {
  double first = logits[(int64_t)a], second = logits[(int64_t)b];
  return first > second || (first == second && a < b);
}

static void sink(double *heap, int64_t count, int64_t at, const double *logits) {
  for (int64_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
    if (child + 1 < count && is_before(logits, heap[child + 1], heap[child])) child++;
    if (is_before(logits, heap[at], heap[child])) return;
    double other = heap[at];
    heap[at] = heap[child], heap[child] = other;
  }
}

/* Keep the fewest of the most probable tokens whose mass is at least p. `heap` is memory as for keep_top_k. */
static void keep_top_p(double *logits, int64_t vocab, double most, double p, double *heap) {
  double total = 0, mass = 0;
  for (int64_t i = 0; i < vocab; i++) total += exp(logits[i] - most);
  for (int64_t i = 0; i < vocab; i++) heap[i] = (double)i;
  for (int64_t i = vocab / 2; i-- > 0;) sink(heap, vocab, i, logits);
  int64_t left = vocab;
  while (left > 0) {
    double own = exp(logits[(int64_t)heap[0]] - most) / total;
    mass += own;
    if (!(mass - own < p * (1 - ROUNDING))) break;
    heap[0] = heap[--left];
    sink(heap, left, 0, logits);
  }
  for (int64_t i = 0; i < left; i++) logits[(int64_t)heap[i]] = -INFINITY;
}

/* The token of these logits for a number in [0, 1); NO_CHOICE for what `distribution` refuses. `work` has 2 · vocab. */
static int64_t choose(const float *given, int64_t vocab, const sampling_t *how, const int64_t *forbidden,
                      int64_t num_forbidden, const int64_t *history, int64_t seen, double number, double *work) {
  double *logits = work, *other = work + vocab, most = -INFINITY;
  int64_t top = 0, chosen = NO_CHOICE;
  for (int64_t i = 0; i < vocab; i++) {
    if (!(given[i] < INFINITY)) return NO_CHOICE; /* NaN too */
    logits[i] = given[i];
  }
  for (int64_t i = 0; i < num_forbidden; i++) logits[forbidden[i]] = -INFINITY;
  if (how->penalty != 1) {
    memset(other, 0, (size_t)vocab * sizeof(double));
    for (int64_t i = 0; i < seen; i++) {
      int64_t token = history[i];
      if (other[token] != 0) continue;
      other[token] = 1;
      double before = logits[token], after = before > 0 ? before / how->penalty : before * how->penalty;
      if (isinf(after) && !isinf(before)) return NO_CHOICE;
      logits[token] = after;
    }
  }
  for (int64_t i = 0; i < vocab; i++)
    if (logits[i] > most) most = logits[i], top = i;
  if (most == -INFINITY) return NO_CHOICE;
  if (how->temperature == 0) return top;
  for (int64_t i = 0; i < vocab; i++) logits[i] = (logits[i] - most) / how->temperature;
  if (how->top_k > 0 && how->top_k < vocab) keep_top_k(logits, vocab, (int64_t)how->top_k, other);
  if (how->top_p < 1) keep_top_p(logits, vocab, 0, how->top_p, other);
  double total = 0;
  for (int64_t i = 0; i < vocab; i++) {
    double weight = logits[i] == -INFINITY ? 0 : exp(logits[i]);
    if (weight < how->min_p * (1 - ROUNDING)) weight = 0;
    total += weight, logits[i] = total;
  }
  for (int64_t i = 0; i < vocab && chosen < 0; i++)
    if (logits[i] > number * total) chosen = i;
  return chosen;
}

/* ---- What the library offers ---- */

/* The SHA-256 of this file when it was compiled. */
EXPORTED const char *vitral_step_source(void) { return VITRAL_SOURCE; }

/* The kind of processor whose instructions are used. */
EXPORTED const char *vitral_step_processor(void) {
#if defined(__x86_64__) && defined(__linux__) && !defined(VITRAL_ONE_TARGET)
  if (__builtin_cpu_supports("x86-64-v4")) return "AVX-512";
  if (__builtin_cpu_supports("x86-64-v3")) return "AVX2";
#endif
#if defined(__AVX2__)
  return "AVX2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "plain";
#endif
}

/* Floats of memory that `vitral_step_write` needs for windows of at most `positions` tokens, aligned to 8 bytes. */
EXPORTED int64_t vitral_step_memory(const int64_t *numbers, int64_t positions, int64_t threads) {
  scratch_t none = {0};
  return take(&none, NULL, numbers, vectors_of(numbers, positions), positions, threads) + 4 * numbers[VOCAB];
}

/* Read the tokens that are new, give the logits of the next one, choose and append it, `count` times.

   shape: positions of the cache, tokens that a row of `tokens` has room for, the first row and the number of rows, where
   the window begins in a row, tokens in the cache, tokens so far, count, number of forbidden ids, threads (on return 1
   where another program had their cores). The last token chosen is not read. With count 0 it is read and nothing is chosen. The logits, [row][vocab], are the last that were computed.

   Returns the number of tokens that each row got; a smaller one where `choose` refuses; UNKNOWN_TOKEN. */
EXPORTED int64_t vitral_step_write(const int64_t *numbers, const float *const *arrays, float *const *cache,
                                   int64_t *shape, int64_t *tokens, const double *sampling,
                                   const int64_t *forbidden, const double *chances, float *logits, float *memory) {
  model_t m = {numbers, numbers + NUMBERS, arrays, arrays[EPSILON][0]};
  sampling_t how = {sampling[0], sampling[1], sampling[2], sampling[3], sampling[4]};
  int64_t step = shape[1], first = shape[2], rows = shape[3], begin = shape[4], cached = shape[5], length = shape[6];
  int64_t count = shape[7], made = 0, vocab = numbers[VOCAB];
  block_t b = {cache, shape[0], tokens + (begin + cached), step, first, rows, cached, length - begin - cached};
  if (!known(&m, &b)) return UNKNOWN_TOKEN;
  double *work = (double *)(void *)memory;
  memory += 4 * vocab;
  logits += first * vocab;
  team_t team;
  gather(&team, shape[9]);
  for (int is_chosen = 1; is_chosen && made < largest_of(1, count); made += is_chosen) {
    read_rows(&m, &b, logits, memory, &team);
    for (int64_t row = 0; count > 0 && is_chosen && row < rows; row++) {
      int64_t *own = tokens + (first + row) * step;
      own[length] = choose(logits + row * vocab, vocab, &how, forbidden, shape[8], own, length,
                           chances[(first + row) * count + made], work);
      is_chosen = own[length] != NO_CHOICE;
    }
    b.start += b.time, b.time = 1, b.tokens = tokens + length;
    length++;
  }
  shape[9] = team.is_alone ? 1 : team.threads;
  part(&team);
  return count > 0 ? made : 0;
}
