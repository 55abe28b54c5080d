// Huge `new` that fails and is caught, 1,000 times without and 1,000 times with a throwing new_handler.
// A return probe on a function that throws would end the process here.
#include <cstddef>
#include <new>
#include <unistd.h>

// An argument makes it larger than any address space: some allocators reserve more than there is memory.
static volatile std::size_t huge = std::size_t(1) << 46;
struct handler_threw {};
static void throwing_handler() { throw handler_threw(); }

static void say(const char *text, std::size_t length) {
    if (write(1, text, length) != static_cast<ssize_t>(length)) _exit(3);
}

static void await_line() {
    for (char c = 0; c != '\n';)
        if (read(0, &c, 1) <= 0) _exit(0);
}

__attribute__((noipa)) static bool fails_once() {
    try {
        char *p = new char[huge];
        __asm__ volatile("" : : "r"(p) : "memory");
        delete[] p;
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    } catch (const handler_threw &) {
        return true;
    }
}

int main(int argc, char **) {
    if (argc > 1) huge = std::size_t(1) << 62;
    say("waiting\n", 8);
    await_line();
    int caught = 0;
    for (int i = 0; i < 1000; i++) caught += fails_once();
    std::set_new_handler(throwing_handler);
    for (int i = 0; i < 1000; i++) caught += fails_once();
    if (caught != 2000) return 4;
    // After all that, allocation still works and is still seen.
    char *p = new char[1234];
    __asm__ volatile("" : : "r"(p) : "memory");
    say("{\"functions\":[]}\n", 17);
    await_line();
    say("survived\n", 9);
    return 0;
}
