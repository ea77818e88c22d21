#include "device_hook.h"
#include "hooks/gemm_shape.h"

static struct rk_gemm_queries queries = {.library = "libhipblas",
                                         .get_stream = "hipblasGetStream",
                                         .lt_library = "libhipblaslt",
                                         .layout_attribute = "hipblasLtMatrixLayoutGetAttribute",
                                         .description_attribute = "hipblasLtMatmulDescGetAttribute",
                                         .attributes = {2, 4, 5, 0, 0}};

#define VENDOR RK_PLATFORM_HIP
#define VENDOR_STREAM(handle) rk_gemm_stream(&queries, handle)
#define VENDOR_LT_SHAPE(description, a, d) rk_gemm_lt_shape(&queries, description, a, d)

#define ROWS HIPBLAS
#include "gemm_hooks.h"

#undef ROWS
#define ROWS HIPBLASLT
#include "lt_gemm_hooks.h"
