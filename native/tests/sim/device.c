/* Test double: the device as a whole: its context, how long work takes, forks and resets. */
#define _GNU_SOURCE
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>

enum { CONTEXTS = 16 };

static const char *const length_names[SIM_LENGTH_COUNT] = {"SIM_PRODUCT_NS", "SIM_TRANSFER_NS",
                                                           "SIM_COPY_NS"};
static _Atomic uint64_t lengths[SIM_LENGTH_COUNT];
static _Atomic bool forked;
static _Atomic uint32_t epoch = 1;
static char primary;
static _Thread_local void *contexts[CONTEXTS] = {NULL};
static _Thread_local int depth;

static void in_child(void)
{
    atomic_store(&forked, true);
    sim_report_after_fork();
}

__attribute__((constructor)) static void configure(void)
{
    for (int i = 0; i < SIM_LENGTH_COUNT; i++) {
        const char *text = getenv(length_names[i]);
        atomic_store(&lengths[i], text != NULL ? strtoull(text, NULL, 10) : 0);
    }
    pthread_atfork(NULL, NULL, in_child);
}

void sim_set_length(enum sim_length what, uint64_t length_ns)
{
    atomic_store(&lengths[what], length_ns);
}

uint64_t sim_length(enum sim_length what)
{
    return atomic_load_explicit(&lengths[what], memory_order_relaxed);
}

int sim_usable(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed) ? SIM_AFTER_FORK : SIM_OK;
}

void *sim_primary_context(void)
{
    return &primary;
}

void *sim_context_current(void)
{
    return contexts[depth];
}

void sim_context_set(void *context)
{
    contexts[depth] = context;
}

int sim_context_push(void *context)
{
    if (depth == CONTEXTS - 1)
        return SIM_BAD_VALUE;
    contexts[++depth] = context;
    return SIM_OK;
}

int sim_context_pop(void **context)
{
    if (depth == 0)
        return SIM_NO_CONTEXT;
    if (context != NULL)
        *context = contexts[depth];
    contexts[depth--] = NULL;
    return SIM_OK;
}

uint32_t sim_device_epoch(void)
{
    return atomic_load_explicit(&epoch, memory_order_acquire);
}

void sim_device_reset(void)
{
    atomic_fetch_add(&epoch, 1); /* kernels that spin end, and no event of before is known */
    sim_let_go();
    sim_device_synchronize();
}
