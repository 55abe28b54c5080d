/* Memory that is mapped without malloc, by named functions that know how much; and much malloc beside it.
 *
 * `all`: everything, in phases. `flood N`: N mappings at once. `exec`: maps, becomes `image` and maps again.
 */
#include "protocol.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { POOL, GROWS, KEEPS, REPLACES, SHARED, RESERVES, HEAP, THREADS, STACKS, FLOOD, OLD, NEW, MALLOC, ROWS };
static struct row rows[ROWS] = {
    [POOL] = {.name = "pool"}, [GROWS] = {.name = "grows"}, [KEEPS] = {.name = "keeps"},
    [REPLACES] = {.name = "replaces"}, [SHARED] = {.name = "shared"}, [RESERVES] = {.name = "reserves"},
    [HEAP] = {.name = "heap_end"}, [THREADS] = {.name = "in_threads"}, [STACKS] = {.name = "makes_threads"},
    [FLOOD] = {.name = "floods"}, [OLD] = {.name = "old_image"}, [NEW] = {.name = "new_image"},
    [MALLOC] = {.name = "mallocs"},
};
#define PAGE ((size_t)4096)
static const size_t MIB = 1 << 20;

static size_t whole(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }
static void mapped(int row, size_t size) {
    add(&rows[row].alloc, whole(size));
    add(&rows[row].live, whole(size));
}
/* `calls`: how many calls of which nothing is left. */
static void unmapped(int row, size_t size, unsigned calls) {
    rows[row].live.bytes -= size;
    rows[row].live.objects -= calls;
}
static void must(int holds, const char *what) {
    if (holds) return;
    say("{\"error\":\"%s: %s\"}", what, strerror(errno));
    send_line();
    _exit(4);
}
static char *anonymous(char *at, size_t size, int flags) {
    char *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    must(p != MAP_FAILED, "mmap");
    keep(p);
    return p;
}

/* Mapped, and given back whole, at the front, in the middle, at the end, and not at all. */
DISTINCT void pool(void) {
    for (size_t i = 0; i < 60; i++) {
        size_t size = (i % 7 + 5) * PAGE - i % 3;
        char *p = anonymous(NULL, size, 0);
        mapped(POOL, size);
        switch (i % 5) {
        case 0: must(munmap(p, size) == 0, "munmap"); unmapped(POOL, whole(size), 1); break;
        case 1: must(munmap(p, PAGE) == 0, "munmap"); unmapped(POOL, PAGE, 0); break;
        case 2: must(munmap(p + 2 * PAGE, PAGE + 1) == 0, "munmap"); unmapped(POOL, 2 * PAGE, 0); break;
        case 3:
            must(munmap(p + 4 * PAGE, size - 4 * PAGE) == 0, "munmap");
            unmapped(POOL, whole(size) - 4 * PAGE, 0);
            break;
        }
        /* Fails, and changes nothing. */
        if (i % 5 == 4) must(munmap(p + 1, PAGE) == -1, "munmap of no page");
    }
}

/* What grows keeps its stack, wherever it goes. */
DISTINCT void *grows_first(size_t size) { mapped(GROWS, size); return anonymous(NULL, size, 0); }
DISTINCT void grows(void) {
    for (size_t i = 1; i <= 20; i++) {
        char *p = grows_first(4 * PAGE);
        char *q = mremap(p, 4 * PAGE, (4 + i) * PAGE, MREMAP_MAYMOVE);
        must(q != MAP_FAILED, "mremap");
        mapped(GROWS, i * PAGE);
        /* Shrinks to half of what was first; then nowhere to go, which fails. */
        if (i % 2) {
            q = mremap(q, (4 + i) * PAGE, 2 * PAGE, 0);
            must(q != MAP_FAILED, "mremap");
            unmapped(GROWS, (2 + i) * PAGE, 1);
            must(mremap(q, 2 * PAGE, (size_t)1 << 46, MREMAP_MAYMOVE) == MAP_FAILED, "mremap of too much");
        }
    }
}

/* What is mapped over other memory ends it. */
DISTINCT char *keeps(size_t pages) { mapped(KEEPS, pages * PAGE); return anonymous(NULL, pages * PAGE, 0); }
DISTINCT void replaces(char *at, size_t pages) {
    keep(anonymous(at, pages * PAGE, MAP_FIXED));
    mapped(REPLACES, pages * PAGE);
    unmapped(KEEPS, pages * PAGE, 0);
}
static void over(void) {
    for (int i = 0; i < 10; i++) {
        char *p = keeps(12);
        replaces(p + 2 * PAGE, 3);
        /* A file takes the place of memory: of its pages nothing is counted. */
        int fd = fileno(fopen("/proc/self/exe", "r"));
        must(mmap(p + 8 * PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED, "mmap");
        unmapped(KEEPS, 2 * PAGE, 0);
        close(fd);
    }
}

DISTINCT void shared(void) {
    keep(mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    mapped(SHARED, 3 * MIB);
}
DISTINCT void reserves(void) {
    keep(mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mapped(RESERVES, 64 * MIB);
}

/* The break, moved by the program. Nothing else moves it meanwhile. */
DISTINCT void *heap_end(intptr_t by) { return sbrk(by); }
static void moves_break(void) {
    char *end = heap_end(0);
    /* To a whole page, so that it is known what the next moves mean. */
    heap_end((intptr_t)(whole((size_t)end) - (size_t)end));
    heap_end(30 * PAGE);
    heap_end(7 * PAGE);
    mapped(HEAP, 30 * PAGE);
    mapped(HEAP, 7 * PAGE);
    heap_end(-(intptr_t)(10 * PAGE));
    unmapped(HEAP, 10 * PAGE, 1);
}

static pthread_barrier_t together;
DISTINCT void in_threads(size_t i) {
    char *p = anonymous(NULL, (i % 5 + 1) * PAGE, 0);
    if (i % 2) must(munmap(p, (i % 5 + 1) * PAGE) == 0, "munmap");
}
static void *thread(void *with_malloc) {
    pthread_barrier_wait(&together);
    for (size_t i = 0; i < 50; i++) {
        in_threads(i);
        if (with_malloc) keep(malloc(i % 3 ? 1000 : 300000));
    }
    return NULL;
}
DISTINCT void makes_threads(int threads, void *(*run)(void *), void *with_malloc) {
    pthread_t ids[8];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setguardsize(&attributes, 0);
    pthread_attr_setstacksize(&attributes, 64 * PAGE);
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) must(pthread_create(&ids[i], &attributes, run, with_malloc) == 0, "pthread_create");
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++) {
        mapped(STACKS, 64 * PAGE);
        for (size_t n = 0; n < 50; n++) {
            mapped(THREADS, (n % 5 + 1) * PAGE);
            if (n % 2) unmapped(THREADS, (n % 5 + 1) * PAGE, 1);
        }
    }
}

/* Everything that makes an allocator map: none of it is the program's. */
DISTINCT void mallocs(void) {
    for (size_t i = 0; i < 40; i++) {
        keep(malloc(i * 1000));
        void *large = malloc((200 + 100 * i) << 10);
        large = realloc(large, (500 + 300 * i) << 10);
        keep(large);
        if (i % 2) free(large);
        keep(calloc(3, 100000));
        keep(aligned_alloc(4096, MIB));
        void *p = NULL;
        must(posix_memalign(&p, 1 << 16, 3 * MIB) == 0, "posix_memalign");
        keep(valloc(300000));
    }
}

DISTINCT void in_child(void) { keep(anonymous(NULL, 77 * MIB, 0)); }
static void forks(void) {
    pid_t child = fork();
    if (child == 0) {
        in_child();
        _exit(0);
    }
    int status = 1;
    must(waitpid(child, &status, 0) == child && status == 0, "a child");
}

DISTINCT void floods(size_t times) {
    for (size_t i = 0; i < times; i++) {
        char *p = anonymous(NULL, 2 * PAGE, 0);
        mapped(FLOOD, 2 * PAGE);
        if (i % 4) {
            must(munmap(p, 2 * PAGE) == 0, "munmap");
            unmapped(FLOOD, 2 * PAGE, 1);
        }
    }
}

DISTINCT void old_image(void) { keep(anonymous(NULL, 5 * MIB, 0)); }
DISTINCT void new_image(void) { keep(anonymous(NULL, 6 * MIB, 0)); mapped(NEW, 6 * MIB); }

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "all";
    sampling_interval(1);
    await_go();
    if (strcmp(mode, "flood") == 0) {
        floods((size_t)atol(arguments[2]));
    } else if (strcmp(mode, "exec") == 0) {
        old_image();
        execl("/proc/self/exe", arguments[0], "image", NULL);
        must(0, "execl");
    } else if (strcmp(mode, "image") == 0) {
        new_image();
    } else {
        mallocs();
        pool();
        grows();
        over();
        shared();
        reserves();
        makes_threads(4, thread, rows);
        mallocs();
        moves_break();
        forks();
    }
    say_truth(rows, ROWS);
    await_line();
    return 0;
}
