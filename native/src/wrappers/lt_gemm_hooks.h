/* cublasLtMatmul and its twins. No include guard, see device_hook.h. VENDOR_LT_SHAPE(description, a,
 * d) tells the shape. */

WRAP(MATMUL,
     (void *handle, void *description, const void *alpha, const void *a, void *layout_a,
      const void *b, void *layout_b, const void *beta, const void *c, void *layout_c, void *d,
      void *layout_d, const void *algorithm, void *workspace, size_t bytes, void *stream))
{
    FIND_ORIGINAL(MATMUL);
    struct rk_launch launch;
    struct rk_gemm_shape shape = {0, 0};
    bool sampled = rk_platform_wanted(VENDOR) && rk_pass_enter(RK_SERIES_GEMM);
    if (__builtin_expect(sampled, 0)) {
        shape = VENDOR_LT_SHAPE(description, layout_a, layout_d);
        rk_launch_start(&launch, RK_SERIES_GEMM, VENDOR, stream);
    }
    int result = original(handle, description, alpha, a, layout_a, b, layout_b, beta, c, layout_c,
                          d, layout_d, algorithm, workspace, bytes, stream);
    if (__builtin_expect(sampled, 0))
        rk_launch_end(&launch, HOOK_ID(MATMUL), result == 0, shape.size_bytes, shape.flops);
    if (rk_platform_wanted(VENDOR))
        rk_pass_leave();
    return result;
}
