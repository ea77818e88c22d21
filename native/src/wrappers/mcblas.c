#include "device_hook.h"
#include "hooks/gemm_shape.h"

static struct rk_gemm_queries queries = {.library = "libmcblas",
                                         .get_stream = "mcblasGetStream",
                                         .lt_library = "libmcblasLt",
                                         .layout_attribute = "mcblasLtMatrixLayoutGetAttribute",
                                         .description_attribute = "mcblasLtMatmulDescGetAttribute",
                                         .attributes = {0, 2, 3, 5, 3}};

#define VENDOR RK_PLATFORM_MACA
#define VENDOR_STREAM(handle) rk_gemm_stream(&queries, handle)
#define VENDOR_LT_SHAPE(description, a, d) rk_gemm_lt_shape(&queries, description, a, d)

#define ROWS MCBLAS
#include "gemm_hooks.h"

#undef ROWS
#define ROWS MCBLASLT
#include "lt_gemm_hooks.h"
