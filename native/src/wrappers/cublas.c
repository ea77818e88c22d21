#include "device_hook.h"
#include "hooks/gemm_shape.h"

static struct rk_gemm_queries queries = {.library = "libcublas",
                                         .get_stream = "cublasGetStream_v2",
                                         .lt_library = "libcublasLt",
                                         .layout_attribute = "cublasLtMatrixLayoutGetAttribute",
                                         .description_attribute = "cublasLtMatmulDescGetAttribute",
                                         .attributes = {0, 2, 3, 5, 3}};

#define VENDOR RK_PLATFORM_CUDA
#define VENDOR_STREAM(handle) rk_gemm_stream(&queries, handle)
#define VENDOR_LT_SHAPE(description, a, d) rk_gemm_lt_shape(&queries, description, a, d)

#define ROWS CUBLAS
#include "gemm_hooks.h"

#undef ROWS
#define ROWS CUBLASLT
#include "lt_gemm_hooks.h"
