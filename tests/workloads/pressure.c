/* A storm, and when that has been told of, a calm:
 *     pressure STORM CALM SIZE
 * STORM blocks of SIZE bytes as fast as it can, all but the last 64 of them freed; CALM blocks of as many bytes with a millisecond after
 * each, all held.
 */
#include "protocol.h"

static struct row rows[] = {{"storm", {0}, {0}}, {"calm", {0}, {0}}};

DISTINCT void *storm(size_t size) { void *p = malloc(size); keep(p); return p; }
DISTINCT void *calm(size_t size) { void *p = malloc(size); keep(p); return p; }

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t storms = (size_t)atoll(argv[1]), calms = (size_t)atoll(argv[2]);
    size_t size = (size_t)atoll(argv[3]);
    static void *held[64];
    sampling_interval(1);
    await_go();
    for (size_t i = 0; i < storms; i++) {
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
    say_truth(rows, 2);
    await_line();
    for (size_t i = 0; i < calms; i++) {
        calm(size);
        add(&rows[1].alloc, size);
        rows[1].live.objects += 1;
        rows[1].live.bytes += size;
        usleep(1000);
    }
    say_truth(rows, 2);
    await_line();
    return 0;
}
