/* A program around step.c, for machines and checks that Python does not run on: reads a case, writes tokens and logits.

   Its rows are shared among threads, as `step.py` shares them.

   The case, all in int64 and float or double: numbers; arrays, each with its length, -1 for none; tensors of the cache;
   shape; tokens; sampling; forbidden ids; chances; positions; parts of the rows. Every piece of memory is as large as it
   has to be and no larger. */

#include "step.c"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  const int64_t *numbers, *forbidden;
  float **arrays, **kept, *logits, *memory;
  int64_t shape[10], *tokens, made;
  const double *sampling, *chances;
} part_t;

static void *write_part(void *given) {
  part_t *p = given;
  p->made = vitral_step_write(p->numbers, (const float *const *)p->arrays, p->kept, p->shape, p->tokens, p->sampling,
                              p->forbidden, p->chances, p->logits, p->memory);
  return NULL;
}

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
  int64_t floats = vitral_step_memory(numbers, number(in), shape[9]), count_parts = number(in), made = INT64_MAX;
  part_t *parts = calloc((size_t)count_parts, sizeof *parts);
  pthread_t *threads = calloc((size_t)count_parts, sizeof *threads);
  for (int64_t i = 0; i < count_parts; i++) {
    float *memory = malloc((size_t)floats * 4);
    parts[i] = (part_t){numbers, forbidden, arrays, kept, logits, memory, {0}, tokens, 0, sampling, chances};
    memcpy(parts[i].shape, shape, sizeof parts[i].shape);
    parts[i].shape[2] = shape[3] * i / count_parts;
    parts[i].shape[3] = shape[3] * (i + 1) / count_parts - parts[i].shape[2];
    if (pthread_create(&threads[i], NULL, write_part, &parts[i])) return 4;
  }
  for (int64_t i = 0; i < count_parts; i++) {
    pthread_join(threads[i], NULL);
    if (parts[i].made < made) made = parts[i].made;
    free(parts[i].memory);
  }
  fwrite(&made, 8, 1, out);
  fwrite(tokens, 8, (size_t)num_tokens, out);
  fwrite(logits, 4, (size_t)num_logits, out);
  for (int64_t i = 0; i < num_arrays; i++) free(arrays[i]);
  for (int64_t i = 0; i < num_kept; i++) free(kept[i]);
  void *rest[] = {numbers, arrays, kept, shape, tokens, sampling, forbidden, chances, logits, parts, threads};
  for (int i = 0; i < 11; i++) free(rest[i]);
  return fclose(in) || fclose(out);
}
