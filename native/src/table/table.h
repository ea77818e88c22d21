/* The one table of hooked symbols.
 *
 * The version script, the export test, the rows that readers see in the shared-memory file and
 * the wrappers are all made from it. To add a hook: add its symbol and its row, and write the
 * wrapper with the same id. */
#ifndef RELKIT_HOOKS_TABLE_H
#define RELKIT_HOOKS_TABLE_H

#include "table_ascend.h"
#include "table_cuda.h"
#include "table_hip.h"
#include "table_maca.h"
#include "table_nccl.h"

#define RK_GLOO(rest) "_ZN4gloo" rest
#define RK_C10D(rest) "_ZN4c10d" rest

/* gloo::NAME(NAMEOptions &), const for allreduce */
#define RK_SYMBOL_GLOO_ALLREDUCE RK_GLOO("9allreduceERKNS_16AllreduceOptionsE")
#define RK_SYMBOL_GLOO_ALLGATHER RK_GLOO("9allgatherERNS_16AllgatherOptionsE")
#define RK_SYMBOL_GLOO_ALLGATHERV RK_GLOO("10allgathervERNS_17AllgathervOptionsE")
#define RK_SYMBOL_GLOO_BROADCAST RK_GLOO("9broadcastERNS_16BroadcastOptionsE")
#define RK_SYMBOL_GLOO_REDUCE RK_GLOO("6reduceERNS_13ReduceOptionsE")
#define RK_SYMBOL_GLOO_GATHER RK_GLOO("6gatherERNS_13GatherOptionsE")
#define RK_SYMBOL_GLOO_SCATTER RK_GLOO("7scatterERNS_14ScatterOptionsE")
#define RK_SYMBOL_GLOO_ALLTOALL RK_GLOO("8alltoallERNS_15AlltoallOptionsE")
#define RK_SYMBOL_GLOO_ALLTOALLV RK_GLOO("9alltoallvERNS_16AlltoallvOptionsE")
#define RK_SYMBOL_GLOO_BARRIER RK_GLOO("7barrierERNS_14BarrierOptionsE")

/* gloo::rendezvous::Context::connectFullMesh(shared_ptr<Store>, shared_ptr<Device> &) */
#define RK_SYMBOL_GLOO_CONNECT                                                                     \
    RK_GLOO("10rendezvous7Context15connectFullMeshESt10shared_ptrINS0_5StoreEERS2_INS_9transport6" \
            "DeviceEE")

/* gloo::transport::tcp::UnboundBuffer: waitRecv and waitSend(int *, milliseconds); recv and
 * send(int rank, uint64_t slot, size_t offset, size_t bytes) */
#define RK_TCP_BUFFER(rest) RK_GLOO("9transport3tcp13UnboundBuffer" rest)
#define RK_WAIT_ARGUMENTS "EPiNSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
#define RK_SYMBOL_GLOO_WAIT_RECV RK_TCP_BUFFER("8waitRecv" RK_WAIT_ARGUMENTS)
#define RK_SYMBOL_GLOO_WAIT_SEND RK_TCP_BUFFER("8waitSend" RK_WAIT_ARGUMENTS)
#define RK_SYMBOL_GLOO_POST_RECV RK_TCP_BUFFER("4recvEimmm")
#define RK_SYMBOL_GLOO_POST_SEND RK_TCP_BUFFER("4sendEimmm")
/* The same recv from any of several ranks, and gloo::transport::tcp::Context::Context(shared_ptr<Device>,
 * int rank, int size) */
#define RK_SYMBOL_GLOO_POST_RECV_ANY RK_TCP_BUFFER("4recvESt6vectorIiSaIiEEmmm")
#define RK_SYMBOL_GLOO_TRANSPORT RK_GLOO("9transport3tcp7ContextC1ESt10shared_ptrINS1_6DeviceEEii")

/* gloo::transport::tcp::Socket::Socket(int fd) */
#define RK_SYMBOL_GLOO_SOCKET RK_GLOO("9transport3tcp6SocketC1Ei")

/* The constructors of c10d::ProcessGroupGloo and of c10d::ProcessGroupWrapper(backend, helper);
 * c10d::ProcessGroup::setGroupName(std::string const &) */
#define RK_SYMBOL_C10D_GLOO_GROUP                                                                  \
    RK_C10D("16ProcessGroupGlooC1ERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_" \
            "default_null_typeIS3_EEEEiiNS2_INS0_7OptionsENS5_ISA_EEEE")
#define RK_SYMBOL_C10D_CHECKED_GROUP                                                               \
    RK_C10D("19ProcessGroupWrapperC1ERKN3c1013intrusive_ptrINS_7BackendENS1_6detail34intrusive_"   \
            "target_default_null_typeIS3_EEEES7_")
#define RK_SYMBOL_C10D_GROUP_NAME                                                                  \
    RK_C10D("12ProcessGroup12setGroupNameERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE")

#define RK_SYMBOL_MKL_SGEMM "sgemm_"
#define RK_SYMBOL_MKL_DGEMM "dgemm_"
#define RK_SYMBOL_MKL_CGEMM "cgemm_"
#define RK_SYMBOL_MKL_ZGEMM "zgemm_"
#define RK_SYMBOL_MKL_SGEMM_BATCH "cblas_sgemm_batch"
#define RK_SYMBOL_MKL_DGEMM_BATCH "cblas_dgemm_batch"
#define RK_SYMBOL_MKL_SGEMM_COMPUTE "cblas_sgemm_compute"
#define RK_SYMBOL_MKL_GEMM_BF16 "cblas_gemm_bf16bf16f32"
#define RK_SYMBOL_MKL_GEMM_F16 "cblas_gemm_f16f16f32"

/* Called by relkit's own Python: native/src/hooks/marks.c */
#define RK_SYMBOL_MARK_STEP "relkit_mark_step"
#define RK_SYMBOL_MARK_INPUT "relkit_mark_input"
#define RK_SYMBOL_MARK_GC "relkit_mark_gc"
#define RK_SYMBOL_MARK_CALL "relkit_mark_call"

/* X(id, platform, kind, short name, required: every supported PyTorch has it) */
#define RELKIT_CPU_HOOKS(X)                                                                        \
    X(GLOO_ALLREDUCE, cpu, COLLECTIVE, "allreduce", 1)                                             \
    X(GLOO_ALLGATHER, cpu, COLLECTIVE, "allgather", 1)                                             \
    X(GLOO_ALLGATHERV, cpu, COLLECTIVE, "allgatherv", 1)                                           \
    X(GLOO_BROADCAST, cpu, COLLECTIVE, "broadcast", 1)                                             \
    X(GLOO_REDUCE, cpu, COLLECTIVE, "reduce", 1)                                                   \
    X(GLOO_GATHER, cpu, COLLECTIVE, "gather", 1)                                                   \
    X(GLOO_SCATTER, cpu, COLLECTIVE, "scatter", 1)                                                 \
    X(GLOO_ALLTOALL, cpu, COLLECTIVE, "alltoall", 1)                                               \
    X(GLOO_ALLTOALLV, cpu, COLLECTIVE, "alltoallv", 1)                                             \
    X(GLOO_BARRIER, cpu, COLLECTIVE, "barrier", 1)                                                 \
    X(GLOO_CONNECT, cpu, COLLECTIVE, "connect", 0)                                                 \
    X(GLOO_WAIT_RECV, cpu, P2P, "recv", 1)                                                         \
    X(GLOO_WAIT_SEND, cpu, P2P, "send", 1)                                                         \
    X(GLOO_POST_RECV, cpu, INTERNAL, "post_recv", 0)                                               \
    X(GLOO_POST_SEND, cpu, INTERNAL, "post_send", 0)                                               \
    X(GLOO_POST_RECV_ANY, cpu, INTERNAL, "post_recv_any", 0)                                       \
    X(GLOO_TRANSPORT, cpu, INTERNAL, "transport", 0)                                               \
    X(GLOO_SOCKET, cpu, INTERNAL, "socket", 0)                                                     \
    X(C10D_GLOO_GROUP, cpu, INTERNAL, "group", 0)                                                  \
    X(C10D_CHECKED_GROUP, cpu, INTERNAL, "checked_group", 0)                                       \
    X(C10D_GROUP_NAME, cpu, INTERNAL, "group_name", 0)                                             \
    X(MKL_SGEMM, cpu, GEMM, "sgemm", 1)                                                            \
    X(MKL_DGEMM, cpu, GEMM, "dgemm", 1)                                                            \
    X(MKL_CGEMM, cpu, GEMM, "cgemm", 0)                                                            \
    X(MKL_ZGEMM, cpu, GEMM, "zgemm", 0)                                                            \
    X(MKL_SGEMM_BATCH, cpu, GEMM, "sgemm_batch", 0)                                                \
    X(MKL_DGEMM_BATCH, cpu, GEMM, "dgemm_batch", 0)                                                \
    X(MKL_SGEMM_COMPUTE, cpu, GEMM, "sgemm_packed", 0)                                             \
    X(MKL_GEMM_BF16, cpu, GEMM, "gemm_bf16", 0)                                                    \
    X(MKL_GEMM_F16, cpu, GEMM, "gemm_f16", 0)                                                      \
    X(MARK_STEP, relkit, MARK, "step", 0)                                                          \
    X(MARK_INPUT, relkit, MARK, "input", 0)                                                        \
    X(MARK_GC, relkit, MARK, "gc", 0)                                                              \
    X(MARK_CALL, relkit, MARK, "call", 0)

/* dlsym, where symbol_lookup.c has an entry for the machine. */
#define RK_SYMBOL_SYMBOL_LOOKUP "dlsym"
#if defined(__x86_64__) || defined(__aarch64__)
#define RELKIT_LOOKUP_HOOKS(X) X(SYMBOL_LOOKUP, relkit, INTERNAL, "dlsym", 0)
#else
#define RELKIT_LOOKUP_HOOKS(X)
#endif

#define RELKIT_HOOKS(X)                                                                            \
    RELKIT_CPU_HOOKS(X)                                                                            \
    RELKIT_LOOKUP_HOOKS(X)                                                                         \
    RELKIT_CUDA_HOOKS(X)                                                                           \
    RELKIT_CU_HOOKS(X)                                                                             \
    RELKIT_CUBLAS_HOOKS(X)                                                                         \
    RELKIT_CUBLASLT_HOOKS(X)                                                                       \
    RELKIT_NCCL_HOOKS(X)                                                                           \
    RELKIT_RCCL_HOOKS(X)                                                                           \
    RELKIT_MACA_HOOKS(X)                                                                           \
    RELKIT_MCBLAS_HOOKS(X)                                                                         \
    RELKIT_MCBLASLT_HOOKS(X)                                                                       \
    RELKIT_MCCL_HOOKS(X)                                                                           \
    RELKIT_HIP_HOOKS(X)                                                                            \
    RELKIT_HIPBLAS_HOOKS(X)                                                                        \
    RELKIT_HIPBLASLT_HOOKS(X)                                                                      \
    RELKIT_ACL_HOOKS(X)                                                                            \
    RELKIT_HCCL_HOOKS(X)

/* The version script includes this file for the symbols alone. */
#ifndef RELKIT_SYMBOLS_ONLY
enum rk_hook_id {
#define RELKIT_HOOK_ID(id, platform, kind, name, required) RK_HOOK_##id,
    RELKIT_HOOKS(RELKIT_HOOK_ID)
#undef RELKIT_HOOK_ID
        RK_HOOK_COUNT
};
#endif

#endif
