/* Test double: streams that are captured, and graphs. The nodes of a graph run one after another. */
#define _GNU_SOURCE
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>

enum { NODES = 4096, OPEN = 1, SPOILED = 2 };

struct sim_graph {
    _Atomic uint32_t state;
    int mode;
    uint32_t count, events;
    struct sim_op node[NODES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t forbidding;   /* captures open in global mode */
static struct sim_graph *global_open; /* the newest of them */
static _Thread_local int thread_mode; /* SIM_MODE_GLOBAL */

int sim_capture_exchange_mode(int *mode)
{
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return SIM_OK;
}

int sim_forbidden_in_capture(void)
{
    if (atomic_load_explicit(&forbidding, memory_order_relaxed) == 0 ||
        thread_mode == SIM_MODE_RELAXED)
        return SIM_OK;
    pthread_mutex_lock(&lock);
    if (global_open != NULL)
        atomic_store(&global_open->state, SPOILED);
    pthread_mutex_unlock(&lock);
    return SIM_BUSY_CAPTURING;
}

int sim_capture_begin(void *handle, int mode)
{
    struct sim_stream *stream = sim_stream_of(handle);
    if (stream == NULL || sim_stream_is_default(stream))
        return SIM_BUSY_CAPTURING;
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return SIM_BAD_VALUE;
    graph->mode = mode;
    atomic_store(&graph->state, OPEN);
    atomic_store(sim_stream_capture(stream), graph);
    if (mode == SIM_MODE_GLOBAL) {
        pthread_mutex_lock(&lock);
        global_open = graph;
        atomic_fetch_add(&forbidding, 1);
        pthread_mutex_unlock(&lock);
    }
    return SIM_OK;
}

int sim_capture_end(void *handle, struct sim_graph **graph)
{
    struct sim_stream *stream = sim_stream_of(handle);
    struct sim_graph *captured = stream != NULL ? atomic_load(sim_stream_capture(stream)) : NULL;
    if (captured == NULL)
        return SIM_BAD_VALUE;
    for (struct sim_stream *at = sim_stream_next(NULL); at != NULL; at = sim_stream_next(at))
        if (atomic_load(sim_stream_capture(at)) == captured)
            atomic_store(sim_stream_capture(at), NULL);
    if (captured->mode == SIM_MODE_GLOBAL) {
        pthread_mutex_lock(&lock);
        global_open = NULL;
        atomic_fetch_sub(&forbidding, 1);
        pthread_mutex_unlock(&lock);
    }
    *graph = captured;
    if (atomic_load(&captured->state) != SPOILED)
        return SIM_OK;
    sim_graph_destroy(captured);
    *graph = NULL;
    return SIM_CAPTURE_SPOILED;
}

int sim_capture_status(void *handle, int *status)
{
    struct sim_stream *stream = sim_stream_of(handle);
    if (stream == NULL)
        return SIM_BAD_HANDLE;
    struct sim_graph *graph =
        atomic_load_explicit(sim_stream_capture(stream), memory_order_acquire);
    if (sim_stream_is_default(stream) && atomic_load(&forbidding) != 0)
        return SIM_CAPTURE_IMPLICIT;
    *status = graph != NULL ? (int)atomic_load(&graph->state) : 0;
    return SIM_OK;
}

bool sim_captured(struct sim_stream *stream, const struct sim_op *op)
{
    struct sim_graph *graph = atomic_load(sim_stream_capture(stream));
    if (graph == NULL)
        return false;
    if (graph->count == NODES) {
        atomic_store(&graph->state, SPOILED);
        return true;
    }
    graph->node[graph->count++] = *op;
    graph->events += op->is_event;
    return true;
}

static void replay(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_graph *graph = op->object;
    for (uint32_t i = 0; i < graph->count; i++)
        graph->node[i].body(stream, &graph->node[i]);
}

int sim_graph_launch(struct sim_graph *graph, void *stream)
{
    return sim_enqueue(stream,
                       &(struct sim_op){.body = replay, .label = "graph_launch", .object = graph});
}

uint32_t sim_graph_events(const struct sim_graph *graph)
{
    return graph->events;
}

int sim_graph_destroy(struct sim_graph *graph)
{
    for (uint32_t i = 0; i < graph->count; i++)
        if (graph->node[i].drop != NULL)
            graph->node[i].drop(&graph->node[i]);
    free(graph);
    return SIM_OK;
}
