/* A 32-bit program without libc: it waits for the end of its input. Compile with -m32 -static -nostdlib. */
__attribute__((noreturn)) void _start(void) {
    char c;
    long n;
    do {
        __asm__ volatile("int $0x80" : "=a"(n) : "a"(3L), "b"(0L), "c"(&c), "d"(1L) : "memory");
    } while (n > 0);
    __asm__ volatile("int $0x80" : : "a"(1L), "b"(0L));
    __builtin_unreachable();
}
