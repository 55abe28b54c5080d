/* A pool of the program's own: no malloc is called. Its functions take the pool first. */
#include "protocol.h"

struct pool { size_t used; char memory[1 << 20]; };
static struct pool pool;

DISTINCT void *pool_take(struct pool *from, size_t size) {
    void *p = from->memory + from->used;
    from->used += (size + 31) & ~(size_t)15;
    return p;
}

DISTINCT void *pool_table(struct pool *from, size_t size, size_t members) {
    void *p = from->memory + from->used;
    from->used += (size * members + 31) & ~(size_t)15;
    return p;
}

DISTINCT void pool_give(struct pool *to, void *p) {
    keep(to);
    keep(p);
}

static struct row rows[2] = {{.name = "by_take"}, {.name = "by_table"}};

DISTINCT void by_take(int i, size_t size) {
    void *p = pool_take(&pool, size);
    add(&rows[0].alloc, size);
    if (i % 4) pool_give(&pool, p);
    else add(&rows[0].live, size);
}

DISTINCT void by_table(size_t size, size_t members) {
    keep(pool_table(&pool, size, members));
    add(&rows[1].alloc, size * members);
    add(&rows[1].live, size * members);
}

int main(void) {
    sampling_interval(1);
    await_go();
    for (int i = 0; i < 100; i++) by_take(i, (size_t)10 + (size_t)i);
    for (int i = 0; i < 20; i++) by_table(12, (size_t)1 + (size_t)i);
    say_truth(rows, 2);
    await_line();
    return 0;
}
