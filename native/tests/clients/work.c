/* One process: kernels, matrix products, copies, a graph, on CUDA, MACA or HIP. */
#define _GNU_SOURCE
#include "scenes.h"

#include "../sim/blas_api.h"
#include "../sim/modules_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"

static char kernel[8];
static const struct rt_dim3 one = {1, 1, 1};

static void launch(void *stream, uint64_t length_ns)
{
    void *arguments[] = {&length_ns};
    OK(RT(LaunchKernel)(kernel, one, one, arguments, 0, stream));
}

static void each_launch(void *stream)
{
    for (uint64_t ms = 2; ms <= 5; ms++) {
        launch(stream, ms * MS);
        expect_work("launch", 0, 0, ms * MS);
    }
    uint64_t length_ns = 3 * MS;
    void *arguments[] = {&length_ns};
    struct rt_launch_config config = {.grid = one, .block = one, .stream = stream};
    OK(RT(LaunchKernelExC)(&config, kernel, arguments));
    expect_work("launch_ex", 0, 0, length_ns);
    OK(RT(LaunchCooperativeKernel)(kernel, one, one, arguments, 0, stream));
    expect_work("launch_cooperative", 0, 0, length_ns);
#ifdef RT_PER_THREAD
    OK(RT_PER_THREAD(LaunchKernel)(kernel, one, one, arguments, 0, stream));
    expect_work("launch", 0, 0, length_ns);
#endif
#ifdef SIM_HIP
    OK(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    OK(hipExtModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL, NULL, NULL,
                                0));
    expect_work("launch", 0, 0, length_ns);
    expect_work("launch", 0, 0, length_ns);
#elif defined(SIM_MACA)
    OK(mcModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    expect_work("launch", 0, 0, length_ns);
#endif
}

static void products(void *stream)
{
    void *handle = NULL;
    uint64_t length_ns = 4 * MS;
    sim_set_length(SIM_LENGTH_PRODUCT, length_ns);
    OK(BLAS_V2(Create)(&handle));
    OK(BLAS_V2(SetStream)(handle, stream));
    OK(BLAS_V2(Sgemm)(handle, OP_N, OP_N, 256, 128, 64, NULL, NULL, 256, NULL, 64, NULL, NULL,
                      256));
    expect_work("sgemm", 4 * (256 * 64 + 64 * 128 + 256 * 128), 2 * 256 * 128 * 64, length_ns);
    OK(BLAS_V2(Dgemm)(handle, OP_T, OP_N, 100, 50, 30, NULL, NULL, 30, NULL, 30, NULL, NULL, 100));
    expect_work("dgemm", 8 * (100 * 30 + 30 * 50 + 100 * 50), 2 * 100 * 50 * 30, length_ns);
    OK(BLAS(SgemmStridedBatched)(handle, OP_N, OP_N, 32, 16, 8, NULL, NULL, 32, 256, NULL, 8, 128,
                                 NULL, NULL, 32, 512, 7));
    expect_work("sgemm_batch", 7 * 4 * (32 * 8 + 8 * 16 + 32 * 16), 7 * 2 * 32 * 16 * 8, length_ns);
    OK(BLAS(GemmEx)(handle, OP_N, OP_N, 512, 256, 1024, NULL, NULL, BLAS_R_16BF, 512, NULL,
                    BLAS_R_16BF, 1024, NULL, NULL, BLAS_R_32F, 512, 68, -1));
    expect_work("gemm", 2 * (512 * 1024 + 1024 * 256) + 4 * 512 * 256,
                UINT64_C(2) * 512 * 256 * 1024, length_ns);
    OK(BLAS(GemmStridedBatchedEx)(handle, OP_N, OP_N, 64, 64, 64, NULL, NULL, BLAS_R_16F, 64, 4096,
                                  NULL, BLAS_R_16F, 64, 4096, NULL, NULL, BLAS_R_16F, 64, 4096, 3,
                                  68, -1));
    expect_work("gemm_strided_batch", 3 * 2 * 3 * 64 * 64, 3 * 2 * 64 * 64 * 64, length_ns);
    OK(BLAS_V2(Destroy)(handle));
}

/* D (m x n) = A' B, so that A is stored as k x m. */
static void matmul(void *stream)
{
    uint64_t m = 384, n = 96, k = 640;
    void *handle = NULL, *description = NULL, *a = NULL, *b = NULL, *d = NULL;
    int32_t transpose = OP_T, batch = 2;
    OK(BLASLT(Create)(&handle));
    OK(BLASLT(MatmulDescCreate)(&description, 68, BLAS_R_32F));
    OK(BLASLT(MatmulDescSetAttribute)(description, LT_TRANSPOSE_A, &transpose, sizeof transpose));
    OK(BLASLT(MatrixLayoutCreate)(&a, BLAS_R_16BF, k, m, (int64_t)k));
    OK(BLASLT(MatrixLayoutCreate)(&b, BLAS_R_16BF, k, n, (int64_t)k));
    OK(BLASLT(MatrixLayoutCreate)(&d, BLAS_R_16BF, m, n, (int64_t)m));
    OK(BLASLT(MatrixLayoutSetAttribute)(d, LT_BATCH, &batch, sizeof batch));
    OK(BLASLT(Matmul)(handle, description, NULL, NULL, a, NULL, b, NULL, NULL, d, NULL, d, NULL,
                      NULL, 0, stream));
    expect_work("matmul", 2 * 2 * (m * k + k * n + m * n), 2 * 2 * m * n * k, 4 * MS);
    OK(BLASLT(MatrixLayoutDestroy)(a));
    OK(BLASLT(MatrixLayoutDestroy)(b));
    OK(BLASLT(MatrixLayoutDestroy)(d));
    OK(BLASLT(MatmulDescDestroy)(description));
    OK(BLASLT(Destroy)(handle));
}

static void copies(void *stream, char *device, char *host)
{
    sim_set_length(SIM_LENGTH_COPY, 3 * MS);
    OK(RT(MemcpyAsync)(device, host, 4096, 1, stream));
    expect_work("memcpy_async", 4096, 0, 3 * MS);
    OK(RT(MemsetAsync)(device, 7, 1024, stream));
    expect_work("memset_async", 1024, 0, 3 * MS);
}

static void blocking_calls(void)
{
    char *device = NULL, *host = NULL;
    OK(RT(Malloc)((void **)&device, 8192));
    expect_call("malloc", 8192);
    OK(RT_HOST_ALLOC((void **)&host, 2048, 0));
    expect_call("host_alloc", 2048);
    OK(RT(Memset)(device, 1, 8192));
    expect_call("memset", 8192);
    OK(RT(Memcpy)(host, device, 2048, 2));
    expect_call("memcpy", 2048);
    OK(RT_HOST_FREE(host));
    expect_call("free_host", 0);
    OK(RT(Free)(device));
    expect_call("free", 0);
}

/* Everything is enqueued behind a gate, so that each piece of work begins where the last one ended. */
void work(char **arguments)
{
    (void)arguments;
    void *stream = NULL, *device = NULL, *host = NULL;
    OK(RT(SetDevice)(0));
    OK(RT(StreamCreate)(&stream));
    OK(RT(Malloc)(&device, 4096));
    OK(RT_HOST_ALLOC(&host, 4096, 0));
    expect_call("malloc", 4096);
    expect_call("host_alloc", 4096);
    OK(sim_hold(stream));
    each_launch(stream);
    products(stream);
    matmul(stream);
    copies(stream, device, host);
    blocking_calls();
    sim_let_go();
    OK(RT(StreamSynchronize)(stream));
    OK(RT(GetLastError)());
    meet();
    expect_number("device_byte", *(char *)device);
    OK(RT(StreamDestroy)(stream));
    OK(RT(Free)(device));
    OK(RT_HOST_FREE(host));
    OK(RT(DeviceReset)());
    tell_counts();
}

/* What is captured is not run, and no event of anybody else's may be in it. */
void graph(char **arguments)
{
    (void)arguments;
    void *stream = NULL, *other = NULL, *handle = NULL, *captured = NULL, *executable = NULL;
    OK(RT(StreamCreate)(&stream));
    OK(RT(StreamCreate)(&other));
    OK(BLAS_V2(Create)(&handle));
    OK(BLAS_V2(SetStream)(handle, stream));
    sim_set_length(SIM_LENGTH_PRODUCT, 4 * MS);
    /* Something is under way while the capture is open, and must be seen without harm to it. */
    OK(sim_hold(other));
    launch(other, 30 * MS);
    sim_let_go();
    expect_work("launch", 0, 0, 30 * MS);
    OK(RT(StreamBeginCapture)(stream, SIM_MODE_GLOBAL));
    for (int i = 0; i < 3; i++)
        OK(BLAS_V2(Sgemm)(handle, OP_N, OP_N, 8, 8, 8, NULL, NULL, 8, NULL, 8, NULL, NULL, 8));
    launch(stream, 2 * MS);
    for (int i = 0; i < 12; i++) { /* enough for new events to be made meanwhile */
        launch(other, MS);
        expect_work("launch", 0, 0, MS);
    }
    sim_sleep_until(sim_now_ns() + 20 * MS);
    OK(RT(StreamEndCapture)(stream, &captured));
    expect_number("captured_events", sim_graph_events(captured));
#ifdef SIM_CUDA
    OK(RT(GraphInstantiate)(&executable, captured, 0));
#else
    OK(RT(GraphInstantiate)(&executable, captured, NULL, NULL, 0));
#endif
    OK(RT(StreamSynchronize)(other));
    OK(sim_hold(stream));
    for (int i = 0; i < 2; i++) {
        OK(RT(GraphLaunch)(executable, stream));
        expect_work("graph_launch", 0, 0, 14 * MS);
    }
    sim_let_go();
    OK(RT(StreamSynchronize)(stream));
    meet();
    OK(RT(GraphExecDestroy)(executable));
    OK(RT(GraphDestroy)(captured));
    OK(BLAS_V2(Destroy)(handle));
    OK(RT(DeviceReset)());
    tell_counts();
}

/* An error of the program's own is the program's to fetch, whatever runs meanwhile. */
void errors(char **arguments)
{
    (void)arguments;
    void *stream = NULL;
    OK(RT(StreamCreate)(&stream));
    launch(stream, 5 * MS);
    expect_number("bad_kernel", RT(LaunchKernel)(NULL, one, one, NULL, 0, stream));
    for (int i = 0; i < 200; i++)
        launch(stream, 0);
    OK(RT(StreamSynchronize)(stream));
    expect_number("peeked", RT(PeekAtLastError)());
    expect_number("fetched", RT(GetLastError)());
    for (int i = 0; i < 200; i++)
        launch(stream, 0);
    OK(RT(StreamSynchronize)(stream));
    expect_number("then", RT(GetLastError)());
    meet();
    tell_counts();
}

static void round_of_launches(void *stream, long count)
{
    for (long i = 0; i < count; i++)
        launch(stream, 0);
    OK(RT(StreamSynchronize)(stream));
}

/* `COUNT` launches: memory and events before and after. */
void many(char **arguments)
{
    void *stream = NULL;
    OK(RT(StreamCreate)(&stream));
    round_of_launches(stream, 100000);
    expect_number("events_before", sim_counted(SIM_EVENTS));
    int64_t before = resident_bytes();
    round_of_launches(stream, atol(arguments[0]));
    expect_number("grown_bytes", resident_bytes() - before);
    expect_number("events_after", sim_counted(SIM_EVENTS));
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}
