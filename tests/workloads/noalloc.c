/* A program without any allocator: static, without libc. It waits for the end of its input. */
__attribute__((noreturn)) void _start(void) {
    char c;
    long n;
    do {
        __asm__ volatile("syscall" : "=a"(n) : "a"(0L), "D"(0L), "S"(&c), "d"(1L) : "rcx", "r11", "memory");
    } while (n > 0);
    __asm__ volatile("syscall" : : "a"(231L), "D"(0L) : "rcx", "r11");
    __builtin_unreachable();
}
