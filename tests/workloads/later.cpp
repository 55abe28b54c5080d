// A C++ library that a C program loads: the first operators of its process. As library.c, but that it has used them all by then.
#include <cstdlib>
#include <map>
#include <new>
#include <string>

struct alignas(64) line {
    char bytes[64];
};

static bool throws(std::size_t size) {
    try {
        char *volatile p = new char[size];
        delete[] p;
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

extern "C" __attribute__((noipa, visibility("default"))) void *library_alloc(std::size_t size) {
    std::map<std::string, line *> all;
    for (int i = 0; i < 40; i++) all[std::string(std::size_t(i), 'x')] = new line();
    for (auto &of : all) delete of.second;
    line *lines = new (std::nothrow) line[3];
    if (!lines || reinterpret_cast<std::size_t>(lines) % 64 || !throws(std::size_t(1) << 62)) std::abort();
    delete[] lines;
    int *nothing = new int[0];
    if (!nothing) std::abort();
    delete[] nothing;
    if (::operator new(std::size_t(1) << 62, std::nothrow)) std::abort();
    return std::malloc(size);
}
