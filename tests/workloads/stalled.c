/* A steady program: each millisecond some blocks that are freed later, and one that is kept, until a line comes.
 *     stalled SIZE EACH QUEUED
 * Each millisecond EACH blocks of SIZE bytes enter a queue of QUEUED blocks, whose oldest are freed.
 */
#include "protocol.h"
#include <poll.h>

static struct row rows[] = {{"queued", {0}, {0}}, {"kept", {0}, {0}}};

/* A frame that makes the stack large, so that copies of it fill the ring. */
DISTINCT void *queued(size_t size) { volatile char room[3000]; room[0] = 1; void *p = malloc(size); keep(p); room[1] = 1; return p; }
DISTINCT void *kept(size_t size) { volatile char room[3000]; room[0] = 1; void *p = malloc(size); keep(p); room[1] = 1; return p; }

static int is_told(void) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t size = (size_t)atoll(argv[1]), each = (size_t)atoll(argv[2]), length = (size_t)atoll(argv[3]);
    void **queue = calloc(length, sizeof *queue);
    sampling_interval(1);
    await_go();
    for (size_t next = 0; !is_told(); usleep(1000)) {
        for (size_t i = 0; i < each; i++, next = (next + 1) % length) {
            if (queue[next]) {
                free(queue[next]);
                rows[0].live.objects -= 1;
                rows[0].live.bytes -= size;
            }
            queue[next] = queued(size);
            add(&rows[0].alloc, size);
            rows[0].live.objects += 1;
            rows[0].live.bytes += size;
        }
        kept(size);
        add(&rows[1].alloc, size);
        add(&rows[1].live, size);
    }
    await_line();
    say_truth(rows, 2);
    await_line();
    return 0;
}
