/* Calls the default version of a library's symbol without end. */
#include "../protocol.h"

void versioned(void);

int main(void) {
    await_go();
    for (;;) {
        for (int i = 0; i < 200; i++) versioned();
        usleep(1000);
    }
}
