/* Programs that a capture could harm: `hard_to_capture SCENE`. Says "up" when it is ready, and at a line of
 * input what has become of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int ready, got;

static void wait_until_ready(void)
{
    while (!atomic_load(&ready))
        sched_yield();
    puts("up");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin) == NULL && errno == EINTR)
        clearerr(stdin);
    printf("%d\n", atomic_load(&got));
}

static void start(void *(*body)(void *), size_t stack_bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    if (pthread_create(&thread, &attributes, body, NULL) != 0)
        exit(3);
}

/* Its call frame information says that the caller's frame is where nothing is. */
void wrong_frames(_Atomic int *flag);
#if defined(__x86_64__)
__asm__(".text\n.globl wrong_frames\n.type wrong_frames, @function\nwrong_frames:\n"
        ".cfi_startproc\n"
        "    movl $1, (%rdi)\n"
        "    movq $0x1000, %rbx\n"
        "    .cfi_def_cfa %rbx, 16\n"
        "1:  movl $34, %eax\n" /* pause */
        "    syscall\n"
        "    jmp 1b\n"
        ".cfi_endproc\n.size wrong_frames, .-wrong_frames\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl wrong_frames\n.type wrong_frames, %function\nwrong_frames:\n"
        ".cfi_startproc\n"
        "    mov w1, #1\n"
        "    str w1, [x0]\n"
        "    mov x19, #0x1000\n"
        "    .cfi_def_cfa x19, 16\n"
        "    .cfi_offset x30, -8\n"
        "1:  mov x0, #0\n    mov x1, #0\n    mov x2, #0\n    mov x3, #0\n    mov x4, #0\n"
        "    mov x8, #73\n" /* ppoll, for ever */
        "    svc #0\n"
        "    b 1b\n"
        ".cfi_endproc\n.size wrong_frames, .-wrong_frames\n");
#endif

static void *lost(void *unused)
{
    (void)unused;
    wrong_frames(&ready);
    return NULL;
}

static _Noreturn void wait_for_ever(void)
{
    atomic_store(&ready, 1);
    for (;;)
        pause();
}

static void *loops(void *unused)
{
    (void)unused;
    wait_for_ever();
}

/* All real-time signals are for this thread. */
static void *collects(void *unused)
{
    (void)unused;
    sigset_t all;
    siginfo_t info;
    sigemptyset(&all);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        sigaddset(&all, number);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    atomic_store(&ready, 1);
    for (;;)
        if (sigwaitinfo(&all, &info) > 0)
            atomic_store(&got, info.si_signo);
    return NULL;
}

static void own_handler(int number)
{
    atomic_store(&got, number);
}

/* A program that comes to its own signals late. */
static void takes_all(int with_signal)
{
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = own_handler;
    for (int number = SIGRTMIN + 8; number <= SIGRTMAX; number++) {
        if (with_signal) {
            if (signal(number, own_handler) != SIG_DFL)
                atomic_store(&got, -number);
        } else if (sigaction(number, &action, &before) != 0 || before.sa_handler != SIG_DFL) {
            atomic_store(&got, -number);
        }
    }
    atomic_store(&ready, 1);
}

static __attribute__((noinline)) void use_stack(uintptr_t limit)
{
    volatile char here[256];
    here[0] = 0;
    if ((uintptr_t)here > limit)
        use_stack(limit);
    else
        wait_for_ever();
    here[255] = 0;
}

/* Nearly at the end of its stack. */
static void *narrow(void *unused)
{
    void *low;
    size_t bytes;
    pthread_attr_t attributes;
    (void)unused;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &bytes);
    use_stack((uintptr_t)low + 2048);
    return NULL;
}

/* The same, with a small stack for handlers, which has a page behind it that must not be touched. */
static void *narrow_handlers(void *unused)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = ((size_t)sysconf(_SC_MINSIGSTKSZ) + 1024 + page - 1) / page * page;
    char *memory =
        mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, page, PROT_NONE);
    stack_t stack = {.ss_sp = memory + page + bytes - (size_t)sysconf(_SC_MINSIGSTKSZ) - 1024,
                     .ss_size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 1024};
    /* What is below belongs to somebody else. */
    memset(memory + page, 0x5a, (size_t)((char *)stack.ss_sp - (memory + page)));
    (void)unused;
    if (sigaltstack(&stack, NULL) != 0)
        exit(4);
    atomic_store(&ready, 1);
    for (;;) {
        pause();
        for (char *at = memory + page; at < (char *)stack.ss_sp; at++)
            if (*at != 0x5a)
                atomic_store(&got, 1);
    }
}

int main(int count, char **arguments)
{
    void (*gemms)(long);
    void *found = dlsym(dlopen(getenv("FAKE_TORCH"), RTLD_NOW), "fake_gemms");
    memcpy(&gemms, &found, sizeof gemms);
    gemms(1);
    const char *scene = count > 1 ? arguments[1] : "";
    if (strcmp(scene, "lost") == 0)
        start(lost, 1 << 20);
    else if (strcmp(scene, "collects") == 0)
        start(collects, 1 << 20);
    else if (strcmp(scene, "loops") == 0)
        start(loops, 1 << 20);
    else if (strcmp(scene, "takes_all") == 0)
        takes_all(0);
    else if (strcmp(scene, "signal_all") == 0)
        takes_all(1);
    else if (strcmp(scene, "narrow") == 0)
        start(narrow, 65536);
    else if (strcmp(scene, "narrow_handlers") == 0)
        start(narrow_handlers, 65536);
    else
        return 2;
    wait_until_ready();
    return 0;
}
