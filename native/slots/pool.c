#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t started; /* there is work, or the pool is being freed */
    pthread_cond_t done;    /* no thread is working any more */
    struct transfer transfer;
    _Atomic uint64_t next;
    _Atomic uint64_t bad;
    uint64_t end;
    uint64_t round; /* number of copies so far; each thread takes part in each once */
    uint32_t working;
    uint32_t count;
    int stopping;
    pthread_t threads[POOL_MAX_THREADS];
};

static void note_bad(struct pool *pool, uint64_t number)
{
    uint64_t lowest = atomic_load_explicit(&pool->bad, memory_order_relaxed);
    while (number < lowest && !atomic_compare_exchange_weak(&pool->bad, &lowest, number)) {
    }
}

static void copy_blocks(struct pool *pool)
{
    for (;;) {
        uint64_t number = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (number >= pool->end) {
            return;
        }
        if (!transfer_block(&pool->transfer, number)) {
            note_bad(pool, number);
        }
    }
}

static void *work(void *argument)
{
    struct pool *pool = argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stopping && pool->round == seen) {
            pthread_cond_wait(&pool->started, &pool->lock);
        }
        if (pool->round == seen) {
            break;
        }
        seen = pool->round;
        pthread_mutex_unlock(&pool->lock);
        copy_blocks(pool);
        pthread_mutex_lock(&pool->lock);
        if (--pool->working == 0) {
            pthread_cond_broadcast(&pool->done);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Signals are left to the process's own threads. The real-time signals that ask a thread for its
 * stack are not blocked. */
static void block_signals(sigset_t *before)
{
    static const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGALRM,
                                  SIGCHLD, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaddset(&blocked, numbers[i]);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

struct pool *pool_new(uint32_t threads)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->started, NULL);
    pthread_cond_init(&pool->done, NULL);
    atomic_init(&pool->next, 0);
    atomic_init(&pool->bad, UINT64_MAX);
    sigset_t before;
    block_signals(&before);
    while (pool->count < threads && pool->count < POOL_MAX_THREADS &&
           pthread_create(&pool->threads[pool->count], NULL, work, pool) == 0) {
        pool->count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->count == 0) {
        pool_free(pool);
        return NULL;
    }
    return pool;
}

void pool_free(struct pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->stopping = 1;
    pthread_cond_broadcast(&pool->started);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->count; i++) {
        pthread_join(pool->threads[i], NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->started);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

int pool_copy(struct pool *pool, const struct transfer *transfer, uint64_t first, uint64_t end,
              uint64_t *bad)
{
    if (!transfer_is_sound(transfer) || first > end || end > block_count(transfer->size)) {
        return EINVAL;
    }
    pthread_mutex_lock(&pool->lock);
    if (pool->working != 0) {
        pthread_mutex_unlock(&pool->lock);
        return EBUSY;
    }
    pool->transfer = *transfer;
    pool->end = end;
    atomic_store(&pool->next, first);
    atomic_store(&pool->bad, UINT64_MAX);
    pool->round++;
    pool->working = pool->count;
    pthread_cond_broadcast(&pool->started);
    while (pool->working != 0) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    *bad = atomic_load(&pool->bad);
    pthread_mutex_unlock(&pool->lock);
    return *bad == UINT64_MAX ? 0 : EILSEQ;
}
