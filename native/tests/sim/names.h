/* Test double: the vendor that a source is compiled for. */
#if defined(SIM_CUDA)
#include "names_cuda.h"
#elif defined(SIM_MACA)
#include "names_maca.h"
#elif defined(SIM_HIP)
#include "names_hip.h"
#else
#error "define SIM_CUDA, SIM_MACA or SIM_HIP"
#endif
