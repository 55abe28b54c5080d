// As counted.c, of each form of operator new: constructed CALLS [throws]. Before that what has no memory throws, and the exception gets through: not
// from every allocator.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>

static constexpr std::size_t unheard = 8, size = 64, refused = 6666, huge = std::size_t(1) << 62;
static constexpr std::align_val_t line{64};

static void *volatile block;

static const struct {
    const char *name;
    void (*make)();
    void (*end)();
} forms[] = {
    {"new", [] { block = ::operator new(size); }, [] { ::operator delete(block); }},
    {"new[]", [] { block = ::operator new[](size); }, [] { ::operator delete[](block); }},
    {"nothrow", [] { block = ::operator new(size, std::nothrow); }, [] { ::operator delete(block, size); }},
    {"nothrow[]", [] { block = ::operator new[](size, std::nothrow); }, [] { ::operator delete[](block, size); }},
    {"aligned", [] { block = ::operator new(size, line); }, [] { ::operator delete(block, line); }},
    {"aligned[]", [] { block = ::operator new[](size, line); }, [] { ::operator delete[](block, line); }},
    {"aligned_nothrow", [] { block = ::operator new(size, line, std::nothrow); }, [] { ::operator delete(block, size, line); }},
    {"aligned_nothrow[]", [] { block = ::operator new[](size, line, std::nothrow); }, [] { ::operator delete[](block, size, line); }},
};

static bool throws(std::size_t bytes) {
    try {
        block = ::operator new(bytes);
        ::operator delete(block);
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

int main(int argc, char **argv) {
    auto settings = static_cast<const volatile std::uint64_t *>(dlsym(RTLD_DEFAULT, "sampler_preload_settings"));
    long calls = argc > 1 ? std::atol(argv[1]) : 1;
    if (!settings) return 2;
    // The allocator of inlined.cpp refuses small ones, and has no end.
    bool refuses = argc > 2 && throws(refused);
    for (int i = 0; argc > 2 && i < 1000; i++)
        if (throws(refused) != refuses || (!refuses && !throws(huge))) return 3;
    for (const auto &form : forms) {
        std::uint64_t before = settings[unheard];
        for (long call = 0; call < calls; call++) {
            form.make();
            if (!block) return 1;
            form.end();
        }
        std::uint64_t samples = settings[unheard] - before;
        std::printf("%s %lu\n", form.name, static_cast<unsigned long>(samples));
    }
}
