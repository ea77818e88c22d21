/* Test double: the part of AscendCL and HCCL that is simulated, as published. */
#ifndef SIM_ACL_API_H
#define SIM_ACL_API_H

#include <stddef.h>
#include <stdint.h>

enum { ACL_BUSY = 507000, ACL_INVALID_PARAM = 107000 };
enum { ACL_EVENT_NOT_READY = 0, ACL_EVENT_COMPLETE = 1 };

int aclInit(const char *config);
int aclFinalize(void);
int aclrtSetDevice(int32_t device);
int aclrtGetDevice(int32_t *device);
int aclrtResetDevice(int32_t device);
int aclrtGetCurrentContext(void **context);
int aclrtSetCurrentContext(void *context);
int aclrtCreateStream(void **stream);
int aclrtDestroyStream(void *stream);
int aclrtSynchronizeStream(void *stream);
int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t limit_ms);
int aclrtSynchronizeDevice(void);
int aclrtCreateEvent(void **event);
int aclrtCreateEventWithFlag(void **event, uint32_t flag);
int aclrtDestroyEvent(void *event);
int aclrtRecordEvent(void *event, void *stream);
int aclrtQueryEventStatus(void *event, int *status);
int aclrtSynchronizeEvent(void *event);
int aclrtEventElapsedTime(float *milliseconds, void *from, void *to);
int aclrtStreamWaitEvent(void *stream, void *event);
int aclrtMalloc(void **memory, size_t bytes, int policy);
int aclrtFree(void *memory);
int aclrtMallocHost(void **memory, size_t bytes);
int aclrtFreeHost(void *memory);
int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind);
int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream);
int aclrtMemset(void *to, size_t room, int32_t value, size_t bytes);
int aclrtMemsetAsync(void *to, size_t room, int32_t value, size_t bytes, void *stream);
/* The arguments of every simulated kernel begin with its length, a uint64_t of ns. */
int aclrtLaunchKernel(void *kernel, uint32_t blocks, const void *arguments, size_t bytes,
                      void *stream);
int aclmdlRICaptureBegin(void *stream, int mode);
int aclmdlRICaptureEnd(void *stream, void **model);
int aclmdlRICaptureGetInfo(void *stream, int *status, void **model);
int aclmdlRICaptureThreadExchangeMode(int *mode);
int aclmdlRIExecuteAsync(void *model, void *stream);
int aclmdlRIDestroy(void *model);

enum { HCCL_INT8 = 0, HCCL_FP16 = 3, HCCL_FP32 = 4, HCCL_FP64 = 10 };

struct hccl_root_info {
    char internal[4108];
};

/* One transfer of HcclBatchSendRecv: 0 sends, 1 receives. */
struct hccl_send_recv {
    int kind;
    void *buffer;
    uint64_t count;
    int type;
    uint32_t peer;
};

int HcclGetRootInfo(struct hccl_root_info *info);
int HcclCommInitRootInfo(uint32_t ranks, const struct hccl_root_info *info, uint32_t rank,
                         void **comm);
int HcclCreateSubCommConfig(void **parent, uint32_t ranks, uint32_t *list, uint64_t number,
                            uint32_t rank, void *config, void **comm);
int HcclCommDestroy(void *comm);
int HcclGetRankSize(void *comm, uint32_t *size);
int HcclGetRankId(void *comm, uint32_t *rank);
int HcclAllReduce(void *in, void *out, uint64_t count, int type, int op, void *comm, void *stream);
int HcclBroadcast(void *buffer, uint64_t count, int type, uint32_t root, void *comm, void *stream);
int HcclReduce(void *in, void *out, uint64_t count, int type, int op, uint32_t root, void *comm,
               void *stream);
int HcclAllGather(void *in, void *out, uint64_t count, int type, void *comm, void *stream);
int HcclReduceScatter(void *in, void *out, uint64_t count, int type, int op, void *comm,
                      void *stream);
int HcclBarrier(void *comm, void *stream);
int HcclSend(void *buffer, uint64_t count, int type, uint32_t peer, void *comm, void *stream);
int HcclRecv(void *buffer, uint64_t count, int type, uint32_t peer, void *comm, void *stream);
int HcclBatchSendRecv(struct hccl_send_recv *items, uint32_t count, void *comm, void *stream);

#endif
