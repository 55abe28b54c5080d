/* Allocates from code in a file that is mapped and never loaded: what else the file says is its own. */
#include "protocol.h"
#include <fcntl.h>
#include <sys/mman.h>

typedef void *(*caller)(void *(*)(size_t), size_t);

int main(int argc, char **argv) {
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    /* The code's page. */
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 4096);
    if (code == MAP_FAILED) return 1;
    await_go();
    for (;;) {
        for (int i = 0; i < 200; i++) free(((caller)code)(malloc, 1000));
        usleep(1000);
    }
}
