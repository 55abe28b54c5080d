/* Generated code that allocates, and its perf map, which is written anew as a whole: the new function stands first, and the old one's
 * place holds another one. Says `waiting` between the turns. `brief`: code that is unmapped at once. `grow`: lines are added to the map
 * instead. `shared`, `memfd`: so that the code is in memory that has a path. */
#include "protocol.h"
#include <fcntl.h>
#include <sys/mman.h>

typedef void *function(size_t);

/* push %rbp; mov %rsp, %rbp; mov $malloc, %rax; call *%rax; pop %rbp; ret */
static function *generate(unsigned char *at) {
    unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3};
    void *called = (void *)malloc;
    memcpy(code + 6, &called, sizeof called);
    memcpy(at, code, sizeof code);
    return (function *)(void *)at;
}

static char path[64];

static void write_map(const char *text, int how) {
    int map = open(path, O_CREAT | O_WRONLY | how, 0644);
    size_t length = strlen(text);
    if (map < 0 || write(map, text, length) != (ssize_t)length || close(map)) _exit(4);
}

static unsigned char *map_code(const char *kind) {
    int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (strcmp(kind, "shared") == 0) return mmap(NULL, 4096, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (strcmp(kind, "memfd") == 0) {
        int memory = memfd_create("code", 0);
        if (memory < 0 || ftruncate(memory, 4096)) _exit(5);
        return mmap(NULL, 4096, protection, MAP_SHARED, memory, 0);
    }
    return mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void brief(struct row *row) {
    unsigned char *code = map_code("");
    function *allocate = generate(code);
    for (int i = 0; i < 100; i++) {
        keep(allocate(3000));
        add(&row->alloc, 3000), add(&row->live, 3000);
    }
    munmap(code, 4096);
}

int main(int count, char **arguments) {
    const char *kind = count > 1 ? arguments[1] : "";
    sampling_interval(1);
    static struct row rows[] = {{.name = "before"}, {.name = "new"}, {.name = "again"}};
    if (strcmp(kind, "brief") == 0) {
        await_go();
        brief(rows);
        say_truth(rows, 1);
        await_line();
        return 0;
    }
    int how = strcmp(kind, "grow") == 0 ? O_APPEND : O_TRUNC;
    unsigned char *code = map_code(kind);
    function *old = generate(code + 1024), *new = generate(code);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    static char text[256];
    snprintf(text, sizeof text, "%lx 100 before\n", (unsigned long)code + 1024);
    write_map(text, O_TRUNC);
    await_go();
    for (int i = 0; i < 100; i++) {
        keep(old(3000));
        add(&rows[0].alloc, 3000), add(&rows[0].live, 3000);
    }
    await_go();
    snprintf(text, sizeof text, "%lx 100 new\n%lx 100 again\n", (unsigned long)code, (unsigned long)code + 1024);
    write_map(text, how);
    for (int i = 0; i < 100; i++) {
        keep(new(2000));
        add(&rows[1].alloc, 2000), add(&rows[1].live, 2000);
        keep(old(1000));
        add(&rows[2].alloc, 1000), add(&rows[2].live, 1000);
    }
    say_truth(rows, 3);
    await_line();
    unlink(path);
    return 0;
}
