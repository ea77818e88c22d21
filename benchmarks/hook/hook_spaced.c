/* Makes single hooked collectives with the work of a training step between them:
 *
 *     hook_spaced LIBRARY COUNT GAP_US
 *
 * LIBRARY is native/tests/fake_torch.c, whose all-reduce does next to nothing. Between two of them the
 * process works for GAP_US microseconds: it reads, multiplies and writes its way through more memory
 * than the caches hold, as a step does, so that what a call needs is cold. Prints the nanoseconds of
 * each call, one a line. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { NUMBERS = 24 << 20, CHUNK = 4096, WARM_UP = 16, ROUNDS = 4, MAX_COUNT = 1 << 20 };

typedef void (*collectives)(int, int, uint32_t, uint64_t, long);

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The processor's counter, so that the clock which the hook reads is not made warm by us. */
static uint64_t ticks(void)
{
#if defined(__x86_64__)
    _mm_lfence();
    uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(now));
    return now;
#else
    return (uint64_t)now_ns();
#endif
}

static void work(float *numbers, long chunks)
{
    static size_t at;
    for (long chunk = 0; chunk < chunks; chunk++) {
        for (size_t i = 0; i < CHUNK; i++)
            numbers[at + i] = numbers[at + i] * 0.999f + 0.001f;
        at = (at + CHUNK) % NUMBERS;
    }
}

int main(int count, char **arguments)
{
    void *library = count == 4 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    long calls = library == NULL ? 0 : atol(arguments[2]);
    float *numbers = malloc(NUMBERS * sizeof *numbers);
    if (calls < 1 || calls > MAX_COUNT || numbers == NULL) {
        fprintf(stderr, "usage: hook_spaced LIBRARY COUNT GAP_US\n");
        return 2;
    }
    for (size_t i = 0; i < NUMBERS; i++)
        numbers[i] = (float)i;
    collectives reduce;
    void *address = dlsym(library, "fake_collectives");
    memcpy(&reduce, &address, sizeof reduce);
    double begin_ns = now_ns();
    uint64_t begin = ticks();
    work(numbers, ROUNDS * (NUMBERS / CHUNK));
    double ns = now_ns() - begin_ns, ns_a_tick = ns / (double)(ticks() - begin);
    long chunks = (long)(atof(arguments[3]) * 1e3 / ns * ROUNDS * (NUMBERS / CHUNK)) + 1;
    for (long i = 0; i < calls + WARM_UP; i++) {
        work(numbers, chunks);
        uint64_t before = ticks();
        reduce(0, 2, (uint32_t)i, 16, 1);
        uint64_t took = ticks() - before;
        if (i >= WARM_UP)
            printf("%.0f\n", (double)took * ns_a_tick);
    }
    return 0;
}
