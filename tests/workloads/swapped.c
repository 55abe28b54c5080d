/* swapped ONE OTHER: loads a library, waits for a line, allocates by it a few times, after another line a few times more, and after another one many
 * times, waits again, and does the same with another library in its place, by the same calls. */
#include "protocol.h"
#include <dlfcn.h>

enum { FEW = 100, CALLS = 5000 };

/* Where the function lies that allocates. */
DISTINCT void *load_and_run(const char *path, int is_seen) {
    volatile char wide[12 << 10];
    memset((void *)wide, 1, sizeof wide);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) return NULL;
    void *(*run)(size_t) = (void *(*)(size_t))dlsym(library, "run");
    if (!run) return NULL;
    if (is_seen) await_go();
    for (int i = 0; is_seen && i < CALLS; i++) {
        if (i == FEW || i == 2 * FEW) await_go();
        wide[i % sizeof wide] = (char)i;
        free(run(100));
    }
    keep((void *)wide);
    if (is_seen) await_go();
    dlclose(library);
    return (void *)run;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void *first = NULL;
    /* Unseen at first: what the loader keeps is there then, and the next one lies where that one lay. */
    for (int i = 0; i < 4; i++) {
        void *run = load_and_run(argv[1 + i % 2], i >= 2);
        if (!first) first = run;
        if (!run || run != first) return 4;
    }
    return 0;
}
