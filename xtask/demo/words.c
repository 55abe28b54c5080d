/*
 * The C library of the demonstration's service. Its thread writes a log of the words that were
 * searched, and never shortens it: a leak in C.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEPT_MAX 200000

/* Not static: a compiler leaves out what is never read. */
char *entries[KEPT_MAX];

/* Keeps one entry. */
static void log_entry(unsigned number)
{
    char *entry = malloc(4000);
    if (entry)
        entries[number % KEPT_MAX] = memset(entry, 'w', 4000);
}

static void *write_log(void *nothing)
{
    struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };
    for (unsigned number = 0;; number++) {
        log_entry(number);
        nanosleep(&pause, NULL);
    }
    return nothing;
}

/* Starts the thread. Returns 0 if it runs. */
int start_log(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, write_log, NULL);
}
