/* Preloaded into a process whose time of day is to be wrong by COLDSTREAM_CLOCK seconds.
 *
 * Monotonic clocks and all waiting stay as they are. libfaketime would do the same, but with it every
 * time.sleep of Python fails (0.9.10: clock_nanosleep gives EINVAL).
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        const char *wrong = getenv("COLDSTREAM_CLOCK");
        now->tv_sec += wrong ? atol(wrong) : 0;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    if (now)
        *now = found.tv_sec;
    return found.tv_sec;
}
