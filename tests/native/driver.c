/* A program around step.c, for machines and checks that Python does not run on: reads a case, writes tokens and logits.

   The case, all in int64 and float or double: numbers; arrays, each with its length, -1 for none; tensors of the cache;
   shape; tokens; sampling; forbidden ids; chances; floats of logits; positions. Every piece of memory is as large as it
   has to be and no larger. */

#include "step.c"

#include <stdio.h>
#include <stdlib.h>

static void *piece(FILE *file, int64_t count, size_t size) {
  void *memory = malloc((size_t)count * size + (count == 0));
  if (!memory || fread(memory, size, (size_t)count, file) != (size_t)count) exit(3);
  return memory;
}

static int64_t number(FILE *file) {
  int64_t *one = piece(file, 1, 8), value = *one;
  free(one);
  return value;
}

int main(int count, char **words) {
  FILE *in = count == 3 ? fopen(words[1], "rb") : NULL, *out = count == 3 ? fopen(words[2], "wb") : NULL;
  if (!in || !out) return 2;
  int64_t length = number(in), *numbers = piece(in, length, 8);
  int64_t num_arrays = number(in), num_kept;
  float **arrays = calloc((size_t)num_arrays, sizeof(float *));
  for (int64_t i = 0; i < num_arrays; i++) {
    length = number(in);
    arrays[i] = length < 0 ? NULL : piece(in, length, 4);
  }
  num_kept = number(in);
  float **kept = calloc((size_t)num_kept + 1, sizeof(float *));
  for (int64_t i = 0; i < num_kept; i++) {
    length = number(in);
    kept[i] = piece(in, length, 4);
  }
  int64_t *shape = piece(in, 10, 8), num_tokens = number(in), *tokens = piece(in, num_tokens, 8);
  double *sampling = piece(in, 5, 8);
  int64_t *forbidden = piece(in, shape[8], 8);
  double *chances = piece(in, shape[3] * shape[7], 8);
  int64_t num_logits = shape[3] * numbers[VOCAB];
  float *logits = malloc((size_t)num_logits * 4);
  float *memory = malloc((size_t)vitral_step_memory(numbers, number(in), shape[9]) * 4);
  int64_t made = vitral_step_write(numbers, (const float *const *)arrays, kept, shape, tokens, sampling, forbidden,
                                   chances, logits, memory);
  fwrite(&made, 8, 1, out);
  fwrite(tokens, 8, (size_t)num_tokens, out);
  fwrite(logits, 4, (size_t)num_logits, out);
  for (int64_t i = 0; i < num_arrays; i++) free(arrays[i]);
  for (int64_t i = 0; i < num_kept; i++) free(kept[i]);
  void *rest[] = {numbers, arrays, kept, shape, tokens, sampling, forbidden, chances, logits, memory};
  for (int i = 0; i < 10; i++) free(rest[i]);
  return fclose(in) || fclose(out);
}
