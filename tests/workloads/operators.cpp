// Every form of operator new, counted. The forms that cannot throw are held or freed; what the others return is not seen by
// a profiler that stays away from the returns of what can throw.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <unistd.h>

#define DISTINCT __attribute__((noipa))

struct row { const char *name; unsigned long objects, bytes, held, held_bytes; };
static row throwing{"by_throwing", 0, 0, 0, 0}, nothrow{"by_nothrow", 0, 0, 0, 0};
static row plain{"by_malloc", 0, 0, 0, 0};

static void *count(row &of, void *p, std::size_t size, bool held) {
    if (!p) _exit(3);
    __asm__ volatile("" : : "r"(p) : "memory");
    of.objects++;
    of.bytes += size;
    if (held) of.held++, of.held_bytes += size;
    return p;
}

DISTINCT static void by_throwing(std::size_t size, bool held) {
    void *one = count(throwing, ::operator new(size), size, held);
    void *many = count(throwing, ::operator new[](size), size, held);
    if (held) return;
    ::operator delete(one, size);
    ::operator delete[](many);
}

DISTINCT static void by_nothrow(std::size_t size, bool held) {
    void *one = count(nothrow, ::operator new(size, std::nothrow), size, held);
    void *many = count(nothrow, ::operator new[](size, std::nothrow), size, held);
    if (held) return;
    ::operator delete(one, std::nothrow);
    ::operator delete[](many, size);
}

DISTINCT static void by_malloc(std::size_t size, bool held) {
    void *p = count(plain, std::malloc(size), size, held);
    if (!held) std::free(p);
}

static char line[8192];
static int length;

// Nothing that allocates may print.
template <typename... Arguments> static void print(const char *format, Arguments... arguments) {
    length += std::snprintf(line + length, sizeof line - std::size_t(length), format, arguments...);
}

static void send() {
    if (write(1, line, std::size_t(length)) != length) _exit(3);
    length = 0;
}

static void say_row(const row &of, const char *end) {
    const char *zeros = "\"expected\":0,\"variance_bytes\":0,\"cumulant_bytes\":0,\"variance_of_variance_bytes\":0,"
                        "\"variance_objects\":0,\"cumulant_objects\":0,\"variance_of_variance_objects\":0,"
                        "\"variance_trials\":0,\"cumulant_trials\":0,\"variance_of_variance_trials\":0";
    print("{\"name\":\"%s\",\"alloc\":{\"objects\":%lu,\"bytes\":%lu,%s},"
          "\"live\":{\"objects\":%lu,\"bytes\":%lu,%s}}%s",
            of.name, of.objects, of.bytes, zeros, of.held, of.held_bytes, zeros, end);
}

static void await_line() {
    for (char c = 0; c != '\n';)
        if (read(0, &c, 1) <= 0) _exit(0);
}

int main() {
    print("%s", "waiting\n");
    send();
    await_line();
    for (int i = 0; i < 50; i++) {
        std::size_t size = 20 + std::size_t(i) * 41;
        by_throwing(size, i % 2);
        by_nothrow(size, i % 2);
        by_malloc(size, i % 2);
    }
    print("%s", "{\"functions\":[");
    say_row(throwing, ",");
    say_row(nothrow, ",");
    say_row(plain, "]}\n");
    send();
    await_line();
    return 0;
}
