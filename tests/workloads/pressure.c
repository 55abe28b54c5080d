/* A storm, and when a line says that the test has seen the storm, a calm:
 *     pressure STORM CALM SIZE UNTIL_LINE
 * STORM blocks of SIZE bytes as fast as it can, all but the last 64 of them freed; CALM blocks of as many bytes with a millisecond after
 * each, all held. UNTIL_LINE is `storm`, `calm` or `neither`: that one goes on until a line comes.
 */
#include "protocol.h"
#include <poll.h>

static struct row rows[] = {{"storm", {0}, {0}}, {"calm", {0}, {0}}};

DISTINCT void *storm(size_t size) { void *p = malloc(size); keep(p); return p; }
DISTINCT void *calm(size_t size) { void *p = malloc(size); keep(p); return p; }

/* Whether a line has come, or nobody is left to send one. */
static int is_told(void) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    size_t storms = (size_t)atoll(argv[1]), calms = (size_t)atoll(argv[2]);
    size_t size = (size_t)atoll(argv[3]);
    int endless_storm = !strcmp(argv[4], "storm"), endless_calm = !strcmp(argv[4], "calm");
    static void *held[64];
    sampling_interval(1);
    await_go();
    /* It is asked for rarely: the storm is of allocations. */
    for (size_t i = 0; i < storms || (endless_storm && (i % 256 || !is_told())); i++) {
        if (held[i % 64]) {
            free(held[i % 64]);
            rows[0].live.objects -= 1;
            rows[0].live.bytes -= size;
        }
        held[i % 64] = storm(size);
        add(&rows[0].alloc, size);
        rows[0].live.objects += 1;
        rows[0].live.bytes += size;
    }
    if (endless_storm) await_line();
    say_truth(rows, 2);
    await_line();
    for (size_t i = 0; i < calms || (endless_calm && !is_told()); i++) {
        calm(size);
        add(&rows[1].alloc, size);
        rows[1].live.objects += 1;
        rows[1].live.bytes += size;
        usleep(1000);
    }
    if (endless_calm) await_line();
    say_truth(rows, 2);
    await_line();
    return 0;
}
