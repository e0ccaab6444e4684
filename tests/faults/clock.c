/* A wall clock that jumps while a process runs. It is loaded with LD_PRELOAD; the clock that only measures how long
   something takes is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static long ahead; /* seconds */

/* Set the clock so many seconds ahead of the true time, or behind it. */
void clock_jump(long seconds) { ahead = seconds; }

int clock_gettime(clockid_t which, struct timespec *now) {
    static __typeof__(clock_gettime) *next;
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = next(which, now);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) now->tv_sec += ahead;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
