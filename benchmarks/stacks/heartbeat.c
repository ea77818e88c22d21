/* A thread that sleeps 50 us at a time and keeps the longest time between two of its wakings in
 * a shared file: how long the process stood still, seen from inside. Loaded by capture_target.py. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t* longest_ns;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void* beat(void* unused) {
  /* Without it, the reading is mostly the scheduler's; refused without rights, which is fine. */
  struct sched_param priority = {.sched_priority = 1};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = 50000};
  uint64_t last = now_ns();
  for (;;) {
    nanosleep(&pause, NULL);
    const uint64_t now = now_ns();
    if (now - last > *longest_ns) *longest_ns = now - last;
    last = now;
  }
  return unused;
}

/* Start beating into the first 8 bytes of the file; 0 where it cannot be started. */
int relkit_heartbeat_start(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  void* page = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) return 0;
  longest_ns = page;
  pthread_t thread;
  return pthread_create(&thread, NULL, beat, NULL) == 0;
}
