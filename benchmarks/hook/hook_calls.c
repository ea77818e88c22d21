/* Makes hooked calls in a tight loop: hook_calls LIBRARY gemm|small|collective|inner COUNT
 *
 * LIBRARY is native/tests/fake_torch.c, whose hooked functions do next to nothing. Prints
 * nanoseconds a call. "inner" is what gloo's sends and receives inside a collective, and MKL's
 * products inside a batch, go through: hooked, seen to be inside another call, passed on. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double (*timed_calls)(long);

static timed_calls gemms;
static long inner_count;
static double inner_ns;

static void call_inside(void *unused)
{
    (void)unused;
    inner_ns = gemms(inner_count);
}

static timed_calls find(void *library, const char *name)
{
    timed_calls found;
    void *address = dlsym(library, name);
    memcpy(&found, &address, sizeof found);
    return found;
}

int main(int count, char **arguments)
{
    void *library = count == 4 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "usage: hook_calls LIBRARY gemm|small|collective|inner COUNT\n");
        return 2;
    }
    long calls = atol(arguments[3]);
    gemms = find(library, "fake_gemms");
    timed_calls collectives = find(library, "fake_collective_ns");
    if (strcmp(arguments[2], "gemm") == 0) {
        printf("%f\n", gemms(calls));
    } else if (strcmp(arguments[2], "small") == 0) {
        printf("%f\n", find(library, "fake_small_gemms")(calls));
    } else if (strcmp(arguments[2], "collective") == 0) {
        printf("%f\n", collectives(calls));
    } else {
        void (**body)(void *) = dlsym(library, "fake_body");
        *body = call_inside;
        inner_count = calls;
        collectives(1);
        printf("%f\n", inner_ns);
    }
    return 0;
}
