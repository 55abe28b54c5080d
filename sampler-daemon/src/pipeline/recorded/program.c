/* The program whose ring is recorded (record.py). It has its own allocator and no library, so that this file alone determines its stacks.
 *
 * It waits for a line, allocates, replaces itself by the same program, allocates again, says so, and waits for a line.
 *
 *     cc -O1 -g0 -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-builtin -fcf-protection=none \
 *        -fasynchronous-unwind-tables -Wl,--build-id -Wl,-z,noseparate-code -o program program.c
 */
typedef unsigned long size_t;

#define OWN __attribute__((noipa))

static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

/* Freed blocks are reused, so that addresses come again. No probed function calls another one. */
static char heap[8 << 20];
static size_t used;
static void *vacant[64];

static size_t class_of(size_t size) { return 64 - (size_t)__builtin_clzl((size + 15) | 16); }

static void *take(size_t size) {
    size_t class = class_of(size);
    size_t *block = vacant[class];
    if (block) {
        vacant[class] = *(void **)(block + 1);
    } else {
        block = (size_t *)(heap + used);
        used += ((size_t)1 << class) + 8;
        used = (used + 15) & ~(size_t)15;
    }
    *block = class;
    return block + 1;
}

static void give(void *p) {
    if (!p) return;
    size_t class = ((size_t *)p)[-1];
    *(void **)p = vacant[class];
    vacant[class] = (size_t *)p - 1;
}

OWN void *malloc(size_t size) { return take(size); }
OWN void free(void *p) { give(p); }

OWN void *calloc(size_t count, size_t size) {
    char *p = take(count * size);
    for (size_t i = 0; i < count * size; i++) p[i] = 0;
    return p;
}

OWN void *realloc(void *old, size_t size) {
    char *p = take(size);
    size_t length = ((size_t)1 << ((size_t *)old)[-1]) - 8;
    for (size_t i = 0; i < size && i < length; i++) p[i] = ((char *)old)[i];
    give(old);
    return p;
}

static size_t state;

static size_t draw(size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void *held[256];

static void hold(void *p) {
    size_t at = draw(256);
    free(held[at]);
    held[at] = p;
}

OWN void parse(void) { hold(malloc(16 + draw(100))); }
OWN void index_words(void) { hold(calloc(1 + draw(20), 32)); }
OWN void cache(size_t depth) {
    if (depth > 0) {
        cache(depth - 1);
        __asm__ volatile("");
        return;
    }
    hold(malloc(4096 + draw(20000)));
}
OWN void grow(void) {
    size_t at = draw(256);
    if (held[at]) held[at] = realloc(held[at], 200 + draw(3000));
}

OWN void work(size_t steps) {
    /* In the pauses samplerd reads the ring, and tells its eBPF programs the stacks. All of them take less than a second: then samplerd
     * would read the mappings again, and number the stacks anew. */
    static const long pause[2] = {0, 110000000};
    for (size_t i = 0; i < steps; i++) {
        if (i % 250 == 0) call(35, (long)pause, 0, 0);
        switch (draw(8)) {
        case 0: cache(draw(4)); break;
        case 1: case 2: index_words(); break;
        case 3: grow(); break;
        default: parse();
        }
    }
}

OWN int main(char **arguments) {
    char line[16];
    int is_second = arguments[1] && arguments[1][0] == '2';
    state = is_second ? 2 : 1;
    if (!is_second) call(0, 0, (long)line, 16);
    work(1000);
    char *again[] = {arguments[0], "2", 0}, *nothing[] = {0};
    if (!is_second) call(59, (long)arguments[0], (long)again, (long)nothing);
    call(1, 1, (long)"done\n", 5);
    call(0, 0, (long)line, 16);
    return 0;
}

__attribute__((used)) static void start(long *stack) {
    call(60, main((char **)(stack + 1)), 0, 0);
}

__asm__(".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        ".cfi_startproc\n"
        ".cfi_undefined rip\n"
        "xor %ebp, %ebp\n"
        "mov %rsp, %rdi\n"
        "and $-16, %rsp\n"
        "call start\n"
        "hlt\n"
        ".cfi_endproc\n"
        ".size _start, .-_start\n");
