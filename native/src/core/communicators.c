#include "communicators.h"

#include <string.h>

enum { DESTROYED = 1, TAG_TRIAL = 8 };

_Atomic uint32_t rk_communicator_epoch = 1;

int rk_communicator_find(struct rk_header *header, uint64_t context)
{
    struct rk_communicator *table = rk_communicators(header);
    for (int i = 0; i < RK_MAX_COMMUNICATORS; i++) {
        uint64_t known = atomic_load_explicit(&table[i].context, memory_order_acquire);
        if (known == context)
            return i;
        if (known == 0)
            break;
    }
    return -1;
}

int rk_communicator_of(struct rk_header *header, uint64_t context, int32_t rank, int32_t size)
{
    struct rk_communicator *table = rk_communicators(header);
    for (int i = 0; i < RK_MAX_COMMUNICATORS; i++) {
        uint64_t known = 0;
        /* Entries are taken in order and never given back, so the first free one ends the search
         * and the exchange decides who fills it. */
        if (atomic_compare_exchange_strong(&table[i].context, &known, context)) {
            table[i].rank = rank;
            table[i].size = size;
            atomic_store_explicit(&table[i].seq, -1, memory_order_relaxed);
            atomic_store_explicit(&table[i].ready, 1, memory_order_release);
            return i;
        }
        if (known == context)
            return i;
    }
    return -1;
}

void rk_communicator_retire(struct rk_header *header, uint64_t context)
{
    struct rk_communicator *table = rk_communicators(header);
    int index = rk_communicator_find(header, context);
    if (index >= 0) {
        atomic_store(&table[index].context, DESTROYED);
        atomic_fetch_add(&rk_communicator_epoch, 1);
    }
}

void rk_communicator_name(struct rk_header *header, int index, const char *name, uint64_t length)
{
    struct rk_communicator *entry = &rk_communicators(header)[index];
    if (atomic_load_explicit(&entry->named, memory_order_relaxed) != 0)
        return;
    if (length > sizeof entry->name)
        length = sizeof entry->name;
    memcpy(entry->name, name, length);
    atomic_store_explicit(&entry->named, (uint32_t)length, memory_order_release);
}

int64_t rk_communicator_advance(struct rk_header *header, int index, int64_t tag)
{
    struct rk_communicator *entry = &rk_communicators(header)[index];
    int64_t count = (int64_t)atomic_fetch_add(&entry->started, 1);
    int64_t seq = tag;
    int64_t newest = atomic_load(&entry->seq);
    /* A caller that is not PyTorch may leave every tag at 0: then the count is the better guide. */
    if (tag < 0 || (tag == 0 && newest <= count && count >= TAG_TRIAL))
        seq = count;
    while (seq > newest && !atomic_compare_exchange_weak(&entry->seq, &newest, seq))
        ;
    return seq;
}
