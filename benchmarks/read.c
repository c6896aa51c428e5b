/* Reads a buffer once, as fast as one core can: eight sums of eight numbers. */

#include <stdint.h>

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));

float benchmark_read(const float *numbers, int64_t count) {
  v8 sums[8] = {0}, all = {0};
  for (int64_t i = 0; i + 64 <= count; i += 64)
    for (int j = 0; j < 8; j++) sums[j] += *(const v8 *)(numbers + i + 8 * j);
  for (int j = 0; j < 8; j++) all += sums[j];
  return all[0] + all[1] + all[2] + all[3] + all[4] + all[5] + all[6] + all[7];
}
