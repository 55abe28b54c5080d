/* Allocates COUNT blocks of SIZE bytes with a pause of so many microseconds after each, and holds the last HOLD of them:
 *     storm COUNT SIZE HOLD PAUSE
 */
#include "protocol.h"

static struct row rows[] = {{"storm", {0}, {0}}};

DISTINCT void *storm(size_t size) { void *p = malloc(size); keep(p); return p; }

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    size_t count = (size_t)atoll(argv[1]), size = (size_t)atoll(argv[2]);
    size_t hold = (size_t)atoll(argv[3]);
    useconds_t pause = (useconds_t)atoi(argv[4]);
    static void *held[1 << 16];
    if (hold == 0 || hold > 1 << 16) return 2;
    sampling_interval(1);
    await_go();
    for (size_t i = 0; i < count; i++) {
        if (held[i % hold]) {
            free(held[i % hold]);
            rows[0].live.objects -= 1;
            rows[0].live.bytes -= size;
        }
        held[i % hold] = storm(size);
        rows[0].alloc.objects += 1;
        rows[0].alloc.bytes += size;
        rows[0].live.objects += 1;
        rows[0].live.bytes += size;
        if (pause) usleep(pause);
    }
    say_truth(rows, 1);
    await_line();
    return 0;
}
