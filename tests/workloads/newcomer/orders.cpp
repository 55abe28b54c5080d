// A service with a leak: an order is kept for a report that nobody asks for.
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct Order {
    unsigned number;
    std::vector<std::string> lines;
};

class Shop {
    std::map<unsigned, std::shared_ptr<Order>> reported;

    // Work that gives its memory back.
    static std::vector<std::string> parse(unsigned number)
    {
        std::vector<std::string> lines;
        for (unsigned line = 0; line < 200; line++)
            lines.push_back(std::string(40 + line, 'x') + std::to_string(number));
        return lines;
    }

    void remember_order(unsigned number, const std::vector<std::string> &lines)
    {
        auto order = std::make_shared<Order>();
        order->number = number;
        order->lines = lines;
        reported[number] = order;
    }

public:
    void handle(unsigned number) { remember_order(number, parse(number)); }
};

int main()
{
    std::puts("waiting");
    std::fflush(stdout);
    Shop shop;
    for (unsigned number = 0;; number++) {
        shop.handle(number);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}
