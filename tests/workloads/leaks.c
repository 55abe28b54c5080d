/* Rounds: a line that begins with s runs one without a leak, one that begins with l one with; each says the truth so far.
 *
 * `leak` keeps every block for good, `steady` replaces the oldest of its blocks, `cache` fills up to its bound and then
 * replaces its oldest; `brief` frees at once. `rows` says what each has allocated and holds.
 */
#include "protocol.h"

#define POOL 400
#define CACHE 300

static struct row rows[] = {{"leak", {0}, {0}}, {"steady", {0}, {0}}, {"cache", {0}, {0}}, {"brief", {0}, {0}}};
static void *pool[POOL], *cached[CACHE];
static size_t replaced, entered;

static void *took(void *p, size_t owner, size_t size) {
    keep(p);
    add(&rows[owner].alloc, size);
    rows[owner].live.objects += 1;
    rows[owner].live.bytes += size;
    return p;
}

static void give(void *p, size_t owner, size_t size) {
    if (p == NULL) return;
    free(p);
    rows[owner].live.objects -= 1;
    rows[owner].live.bytes -= size;
}

DISTINCT void *leak(size_t size) { void *p = malloc(size); return took(p, 0, size); }
DISTINCT void *steady(size_t size) { void *p = malloc(size); return took(p, 1, size); }
DISTINCT void *cache(size_t size) { void *p = malloc(size); return took(p, 2, size); }
DISTINCT void *brief(size_t size) { void *p = malloc(size); return took(p, 3, size); }

DISTINCT void turn(int leaks) {
    for (int i = 0; i < 50 && leaks; i++) leak(1000);
    for (int i = 0; i < 100; i++) {
        void **place = &pool[replaced++ % POOL];
        give(*place, 1, 1000);
        *place = steady(1000);
    }
    for (int i = 0; i < 40; i++) {
        void **place = &cached[entered++ % CACHE];
        give(*place, 2, 2000);
        *place = cache(2000);
    }
    for (int i = 0; i < 500; i++) give(brief(300), 3, 300);
}

/* The first character of the next line; 'e' when there is none. */
static char next_line(void) {
    char first = 0, c = 0;
    while (c != '\n') {
        ssize_t n = read(0, &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 'e';
        if (first == 0) first = c;
    }
    return first;
}

int main(void) {
    sampling_interval(4096);
    say("waiting");
    send_line();
    for (;;) {
        char what = next_line();
        if (what != 's' && what != 'l') return 0;
        for (int i = 0; i < 20; i++) turn(what == 'l');
        say_truth(rows, 4);
    }
}
