/* What the workloads share: the protocol with the tests, and the truth about allocations.
 *
 * A workload prints `waiting` and blocks; the tests attach and send a line; it allocates, prints one
 * line of JSON (what really was allocated, per function) and blocks again until the next line.
 * Nothing here allocates: lines go through read(2), write(2) and static buffers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A function that keeps its name, its frame and its calls. */
#define DISTINCT __attribute__((noipa))

/* One block must not be proven unused. */
static inline void keep(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

/* Sums over a set of allocations; pi is the probability that the allocation is sampled.
 * With I ~ Bernoulli(pi) and the estimate s*I/pi:
 *   variance            s^2 (1-pi)/pi
 *   fourth cumulant     s^4 (1-pi)(1 - 6 pi (1-pi))/pi^3
 *   variance of the reported variance I w^2 (1-pi), w = s/pi:   s^4 (1-pi)^3/pi^3
 * With K ~ Poisson(m), m = s/R, the estimate K*R and the reported variance K*R^2 (from a chance of 99 % on nothing
 * is left to chance):
 *   variance s^2/m,  fourth cumulant s^4/m^3,  variance of the reported variance s^4/m^3
 * Failed trials of a geometric countdown: each of the first trials of an allocation is made until one hits, so
 *   variance            q (1 - q^s)/p^2, p = 1/R; its fourth cumulant is near that of as many exponentials, 6 R^4 pi */
struct sums {
    uint64_t objects, bytes;
    double expected;
    double variance_bytes, cumulant_bytes, variance_of_variance_bytes;
    double variance_objects, cumulant_objects, variance_of_variance_objects;
    double variance_trials, cumulant_trials;
};

struct row {
    const char *name;
    struct sums alloc, live;
};

static double log_miss; /* ln(1 - 1/R); -inf where R = 1 */
static double interval;
static enum { GEOMETRIC, POISSON, BERNOULLI } strategy;

static inline void sampling_interval(double bytes) {
    log_miss = log1p(-1.0 / bytes);
    interval = bytes;
}

/* `poisson`, or `bernoulli` with one in as many calls as the interval says. */
static inline void sampling_strategy(const char *name) {
    strategy = strcmp(name, "poisson") == 0 ? POISSON : strcmp(name, "bernoulli") == 0 ? BERNOULLI : GEOMETRIC;
}

static inline void add(struct sums *sums, size_t size) {
    sums->objects += 1;
    sums->bytes += size;
    double bytes = (double)(size ? size : 1), s = (double)size;
    double exponent = strategy == BERNOULLI ? log_miss : strategy == POISSON ? -bytes / interval : bytes * log_miss;
    double q = exp(exponent), pi = -expm1(exponent);
    double variance = q / pi;
    double cumulant = q * (1 - 6 * pi * q) / (pi * pi * pi);
    double variance_of_variance = variance * variance * variance;
    if (strategy == POISSON) {
        double m = bytes / interval;
        if (m >= log(100.0)) {
            pi = 1;
            variance = cumulant = variance_of_variance = 0;
        } else {
            variance = 1 / m;
            cumulant = variance_of_variance = 1 / (m * m * m);
        }
    }
    sums->expected += pi;
    sums->variance_trials += (1 - 1 / interval) * pi * interval * interval;
    sums->cumulant_trials += 6 * pi * interval * interval * interval * interval;
    sums->variance_bytes += s * s * variance;
    sums->cumulant_bytes += s * s * s * s * cumulant;
    sums->variance_of_variance_bytes += s * s * s * s * variance_of_variance;
    sums->variance_objects += variance;
    sums->cumulant_objects += cumulant;
    sums->variance_of_variance_objects += variance_of_variance;
}

static inline void add_sums(struct sums *to, const struct sums *from) {
    to->objects += from->objects;
    to->bytes += from->bytes;
    to->expected += from->expected;
    to->variance_bytes += from->variance_bytes;
    to->cumulant_bytes += from->cumulant_bytes;
    to->variance_of_variance_bytes += from->variance_of_variance_bytes;
    to->variance_objects += from->variance_objects;
    to->cumulant_objects += from->cumulant_objects;
    to->variance_of_variance_objects += from->variance_of_variance_objects;
    to->variance_trials += from->variance_trials;
    to->cumulant_trials += from->cumulant_trials;
}

static char line[1 << 16];
static size_t line_length;

static inline void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line_length +=
        (size_t)vsnprintf(line + line_length, sizeof line - line_length, format, arguments);
    va_end(arguments);
}

static inline void send_line(void) {
    say("\n");
    for (size_t sent = 0; sent < line_length;) {
        ssize_t n = write(1, line + sent, line_length - sent);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(3);
        sent += (size_t)n;
    }
    line_length = 0;
}

/* Blocks until the tests send a line; ends with them. */
static inline void await_line(void) {
    char c;
    do {
        ssize_t n = read(0, &c, 1);
        if (n < 0 && errno == EINTR) { c = 0; continue; }
        if (n <= 0) _exit(0);
    } while (c != '\n');
}

static inline void await_go(void) {
    say("waiting");
    send_line();
    await_line();
}

static inline void say_sums(const char *name, const struct sums *s) {
    say("\"%s\":{\"objects\":%llu,\"bytes\":%llu,\"expected\":%.17g,"
        "\"variance_bytes\":%.17g,\"cumulant_bytes\":%.17g,\"variance_of_variance_bytes\":%.17g,"
        "\"variance_objects\":%.17g,\"cumulant_objects\":%.17g,\"variance_of_variance_objects\":%.17g,"
        "\"variance_trials\":%.17g,\"cumulant_trials\":%.17g,\"variance_of_variance_trials\":0}",
        name, (unsigned long long)s->objects, (unsigned long long)s->bytes, s->expected,
        s->variance_bytes, s->cumulant_bytes, s->variance_of_variance_bytes, s->variance_objects,
        s->cumulant_objects, s->variance_of_variance_objects, s->variance_trials, s->cumulant_trials);
}

static inline void say_truth(const struct row *rows, size_t count) {
    say("{\"functions\":[");
    for (size_t i = 0; i < count; i++) {
        say("%s{\"name\":\"%s\",", i ? "," : "", rows[i].name);
        say_sums("alloc", &rows[i].alloc);
        say(",");
        say_sums("live", &rows[i].live);
        say("}");
    }
    say("]}");
    send_line();
}
