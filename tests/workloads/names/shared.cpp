// Allocates without end in templates with long names.
#include <map>
#include <memory>
#include <string>
#include <unistd.h>

namespace shop {
template <class Key> struct Cart {
    std::map<Key, std::string> items;
    explicit Cart(Key key) { items.emplace(key, std::string(500, 'x')); }
};
template <class Key> __attribute__((noinline)) void fill(Key key) {
    auto cart = std::make_shared<Cart<Key>>(key);
    __asm__ volatile("" : : "r"(cart.get()) : "memory");
}
}

int main() {
    char byte;
    if (write(1, "waiting\n", 8) != 8 || read(0, &byte, 1) != 1) return 1;
    for (;;) {
        for (int i = 0; i < 200; i++) shop::fill<long>(i);
        usleep(1000);
    }
}
