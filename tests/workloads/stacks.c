/* Stacks through code of which unwind tables say little. Arguments: the case, and how many turns. With -DUNKNOWN_CIE the linker meets
 * something in .eh_frame that it does not know, and makes no search table. */
#include "protocol.h"
#include <sys/mman.h>

#ifdef UNKNOWN_CIE
__asm__(".pushsection .eh_frame,\"a\",@progbits\n"
        ".long 2f-1f\n1: .long 0\n.byte 1\n.asciz \"zQ\"\n.uleb128 1\n.sleb128 -8\n.byte 16\n.uleb128 0\n.balign 8\n2:\n"
        ".popsection\n");
#endif

static struct row rows[] = {{.name = "by_large"}, {.name = "by_small"}};

DISTINCT void allocate(struct row *row, size_t size) {
    keep(malloc(size));
    add(&row->alloc, size);
    add(&row->live, size);
}

DISTINCT void by_large(void) { allocate(&rows[0], 6000); }
DISTINCT void by_small(void) { allocate(&rows[1], 1000); }

DISTINCT void turn(void) {
    by_large();
    for (int i = 0; i < 4; i++) by_small();
}

/* Code without tables: rbp is 0 in it, or leads to what its caller says. */
void with_zero(void (*callee)(void));
struct frame {
    struct frame *next;
    uintptr_t return_address;
};
void with_frame(void (*callee)(void), struct frame *frame);
__asm__(".text\n"
        "with_zero: push %rbp\n xor %ebp, %ebp\n call *%rdi\n pop %rbp\n ret\n"
        "with_frame: push %rbp\n mov %rsi, %rbp\n call *%rdi\n pop %rbp\n ret\n");

/* Return addresses where nothing is, another one each time. */
static void nowhere(unsigned long i) {
    struct frame frames[2];
    uintptr_t high = i % 2 ? 0x4141414100000000 : 0x300000000000;
    for (int k = 0; k < 2; k++) frames[k] = (struct frame){&frames[1], high + i * 4096};
    with_frame(by_small, frames);
    usleep(900);
}

/* On a page of its own, which is replaced by anonymous memory with the same code. */
__attribute__((noipa, aligned(4096), section(".text.moved"))) void by_moved(void) { allocate(&rows[0], 6000); }
__attribute__((noipa, aligned(4096), section(".text.moved"))) void behind_moved(void) { keep(rows); }

static void move(void) {
    rows[0].name = "by_moved";
    char *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, (void *)by_moved, 4096);
    if (mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)by_moved) == MAP_FAILED) _exit(4);
}

int main(int count, char **arguments) {
    sampling_interval(1);
    const char *name = count > 1 ? arguments[1] : "";
    unsigned long turns = count > 2 ? strtoul(arguments[2], NULL, 10) : 0;
    if (!strcmp(name, "moved")) move();
    if (!strcmp(name, "nowhere"))
        for (int i = 0; i < 30000; i++) /* Neighbours that are not joined. */
            mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    await_go();
    for (unsigned long i = 0; i < turns; i++) {
        if (!strcmp(name, "chain")) turn();
        if (!strcmp(name, "zero")) with_zero(by_small);
        if (!strcmp(name, "moved")) by_moved();
        if (!strcmp(name, "nowhere")) nowhere(i);
    }
    say_truth(rows, 2);
    await_line();
    return 0;
}
