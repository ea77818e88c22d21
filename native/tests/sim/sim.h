/* Test double: a simulated accelerator, for tests of the hook and for nothing else. No real device is
 * behind it, and it is in no wheel. The libraries of this folder (README.md) stand on it.
 *
 * A stream is a thread with a queue. The device's clock is CLOCK_MONOTONIC, but times are computed, not
 * measured: a kernel of 5 ms begins where its stream's last work ended, or when it was enqueued, and
 * ends exactly 5 ms later, however late the thread is woken. */
#ifndef SIM_H
#define SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))
#define SIM_FOR_EVER UINT64_MAX

/* As CUDA numbers them, and HIP and MACA after it. */
enum sim_error {
    SIM_OK = 0,
    SIM_BAD_VALUE = 1,
    SIM_AFTER_FORK = 3,
    SIM_BAD_KERNEL = 98,
    SIM_NO_CONTEXT = 201,
    SIM_BAD_HANDLE = 400,
    SIM_NOT_READY = 600,
    SIM_BUSY_CAPTURING = 900,
    SIM_CAPTURE_SPOILED = 901,
    SIM_CAPTURE_IMPLICIT = 906,
};

enum sim_capture_mode { SIM_MODE_GLOBAL = 0, SIM_MODE_THREAD = 1, SIM_MODE_RELAXED = 2 };

struct sim_stream;
struct sim_event;
struct sim_graph;

struct sim_op {
    /* What the device does; the stream's time is op's start on entry, and its end on return. */
    void (*body)(struct sim_stream *stream, struct sim_op *op);
    void (*drop)(struct sim_op *op); /* gives `object` back; may be NULL */
    const char *label;               /* for the trace; NULL = not there */
    uint64_t enqueue_ns, length_ns, bytes;
    void *object;
    void *to;
    const void *from;
    uint64_t number;
    uint32_t epoch; /* of the device, when it was enqueued */
    bool is_event;
};

/* clock.c */
SIM_API uint64_t sim_now_ns(void);
SIM_API void sim_sleep_until(uint64_t time_ns);
/* A moment between two looks at what another thread or process does. */
SIM_API void sim_pause(void);

/* stream.c */
SIM_API int sim_stream_create(struct sim_stream **stream);
SIM_API int sim_stream_destroy(void *stream);
SIM_API int sim_stream_synchronize(void *stream);
SIM_API int sim_stream_query(void *stream);
SIM_API int sim_device_synchronize(void);
/* NULL and 1 are the default stream, 2 is the thread's own default stream. */
SIM_API struct sim_stream *sim_stream_of(void *handle);
SIM_API int sim_enqueue(void *stream, const struct sim_op *op);
/* Nothing is queued: work that takes no time need not be queued either. */
SIM_API bool sim_is_idle(void *stream);
SIM_API uint64_t *sim_stream_time(struct sim_stream *stream);
SIM_API int sim_stream_number(const struct sim_stream *stream);
struct sim_stream *sim_stream_next(struct sim_stream *after);
_Atomic(struct sim_graph *) *sim_stream_capture(struct sim_stream *stream);
bool sim_stream_is_default(const struct sim_stream *stream);
bool sim_stream_is_captured(void *handle);

/* work.c: what is put on streams */
SIM_API int sim_launch(void *stream, uint64_t length_ns);
SIM_API int sim_copy(void *stream, void *to, const void *from, uint64_t bytes);
SIM_API int sim_fill(void *stream, void *to, int value, uint64_t bytes);
/* The stream stands still here until sim_let_go. */
SIM_API int sim_hold(void *stream);
SIM_API void sim_let_go(void);
/* Name in the trace of what this thread enqueues from now on, NULL for the default. */
SIM_API void sim_label(const char *label);

/* event.c */
SIM_API int sim_event_create(struct sim_event **event);
SIM_API int sim_event_destroy(void *event);
SIM_API int sim_event_record(void *event, void *stream);
SIM_API int sim_event_query(void *event);
SIM_API int sim_event_synchronize(void *event);
SIM_API int sim_event_elapsed(float *milliseconds, void *from, void *to);
SIM_API int sim_stream_wait_event(void *stream, void *event);

/* capture.c */
SIM_API int sim_capture_begin(void *stream, int mode);
SIM_API int sim_capture_end(void *stream, struct sim_graph **graph);
SIM_API int sim_capture_status(void *stream, int *status);
SIM_API int sim_capture_exchange_mode(int *mode);
SIM_API int sim_graph_launch(struct sim_graph *graph, void *stream);
SIM_API int sim_graph_destroy(struct sim_graph *graph);
SIM_API uint32_t sim_graph_events(const struct sim_graph *graph);
/* A call that a thread must not make while a capture is open, which it spoils. */
SIM_API int sim_forbidden_in_capture(void);
/* Adds to the capture of the stream; false where there is none. */
bool sim_captured(struct sim_stream *stream, const struct sim_op *op);

/* device.c */
enum sim_length { SIM_LENGTH_PRODUCT, SIM_LENGTH_TRANSFER, SIM_LENGTH_COPY, SIM_LENGTH_COUNT };
/* How long matrix products, collectives, and copies take from now on. */
SIM_API void sim_set_length(enum sim_length what, uint64_t length_ns);
SIM_API uint64_t sim_length(enum sim_length what);
SIM_API int sim_usable(void); /* SIM_AFTER_FORK in the child of a process that has used it */
SIM_API void *sim_context_current(void);
SIM_API void sim_context_set(void *context);
SIM_API int sim_context_push(void *context);
SIM_API int sim_context_pop(void **context);
SIM_API void *sim_primary_context(void);
/* Streams stop, events are gone. */
SIM_API void sim_device_reset(void);
uint32_t sim_device_epoch(void); /* grows with every reset */

/* inject.c */
/* Whether work number `number` of this kind ("kernel", or a collective's library) on this rank never
 * begins, by SIM_STALL="KIND:rank=R:op=N". */
SIM_API bool sim_stalls(const char *kind, int rank, uint64_t number);
/* Error code for call number `number` of this kind, by SIM_ERROR="KIND:op=N:code=C". */
SIM_API int sim_fails(const char *kind, uint64_t number);

/* report.c */
enum sim_count { SIM_EVENTS, SIM_STREAMS, SIM_LAUNCHES, SIM_MISUSES, SIM_COUNT_COUNT };
SIM_API void sim_count(enum sim_count what, int64_t change);
SIM_API int64_t sim_counted(enum sim_count what);
/* One line into the file of SIM_TRACE, where that is set. */
SIM_API void sim_trace(const char *label, int stream, uint64_t start_ns, uint64_t end_ns,
                       uint64_t bytes);
void sim_report_after_fork(void);

#endif
