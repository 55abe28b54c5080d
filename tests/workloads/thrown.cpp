/* A program that throws exceptions through frames that free what they hold, while something is put into it and taken out again.
 *
 * thrown THREADS: each thread does the same work again and again and compares what comes of it. At each line it says how often, `{"blocks":N,"wrong":N}`; at `exit` it
 * ends with 0 if every result was the first one.
 */
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<unsigned long> blocks, wrong;
static std::atomic<bool> ends;
static volatile std::size_t huge = std::size_t(1) << 60;

struct failure : std::runtime_error {
    std::vector<std::string> trail;
    explicit failure(const std::string &what) : std::runtime_error(what) {}
};

/* Throws at the bottom; each level catches, adds its own, and throws it further. */
__attribute__((noipa)) static unsigned long dig(unsigned depth, unsigned seed) {
    std::string name(depth * 7 % 90 + 1, char('a' + (depth + seed) % 26));
    auto held = std::make_unique<std::map<unsigned, std::string>>();
    for (unsigned i = 0; i < 5; i++) (*held)[i * seed] = name + std::to_string(i);
    if (depth == 0) throw failure(name);
    try {
        return dig(depth - 1, seed) + held->size();
    } catch (failure &of) {
        of.trail.push_back(held->begin()->second);
        throw;
    }
}

__attribute__((noipa)) static bool is_out_of_memory() {
    try {
        char *p = new char[huge];
        __asm__ volatile("" : : "r"(p) : "memory");
        delete[] p;
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

static unsigned long work(unsigned seed) {
    unsigned long hash = 14695981039346656037ul;
    auto mix = [&hash](const std::string &text) {
        for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ul;
    };
    for (unsigned depth = 0; depth < 24; depth++) {
        try {
            dig(depth, seed);
            return 0;
        } catch (const failure &of) {
            mix(of.what());
            for (const auto &text : of.trail) mix(text);
        }
        if (!is_out_of_memory()) return 0;
    }
    return hash;
}

static void loop(unsigned seed, unsigned long first) {
    while (!ends) {
        if (work(seed) != first) wrong++;
        blocks++;
    }
}

int main(int argc, char **argv) {
    std::vector<std::thread> threads;
    for (int i = 0; i < (argc > 1 ? std::atoi(argv[1]) : 1); i++) {
        unsigned seed = 3 + 2 * unsigned(i);
        unsigned long first = work(seed);
        if (!first) return 2;
        threads.emplace_back(loop, seed, first);
    }
    std::cout << "waiting" << std::endl;
    for (std::string line; std::getline(std::cin, line) && line != "exit";)
        std::cout << "{\"blocks\":" << blocks << ",\"wrong\":" << wrong << "}" << std::endl;
    ends = true;
    for (auto &thread : threads) thread.join();
    return wrong ? 3 : 0;
}
