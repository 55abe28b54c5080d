/* Allocations under functions whose names are anything but names: the test renames hostile_N in the symbol table. */
#include "protocol.h"
#include <sys/prctl.h>

DISTINCT void hostile_1(size_t size) { keep(malloc(size)); }
DISTINCT void hostile_2(size_t size) { hostile_1(size); keep(&size); }
DISTINCT void hostile_3(size_t size) { hostile_2(size); keep(&size); }
DISTINCT void hostile_4(size_t size) { hostile_3(size); keep(&size); }
DISTINCT void hostile_5(size_t size) { hostile_4(size); keep(&size); }

int main(void) {
    prctl(PR_SET_NAME, "<b onload=x>");
    await_go();
    for (int i = 0; i < 40; i++) hostile_5(1000 + i);
    say_truth(NULL, 0);
    await_line();
    return 0;
}
