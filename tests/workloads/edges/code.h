/* Code that the program was not linked with. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

/* ARGUMENT is a shared object with `void *library_alloc(size_t)`, loaded after the mark. */
static void case_dlopen(void) {
    void *library = dlopen(argument, RTLD_NOW);
    CHECK(library != NULL);
    void *(*library_alloc)(size_t) = (void *(*)(size_t))dlsym(library, "library_alloc");
    CHECK(library_alloc != NULL);
    for (int i = 0; i < 10; i++) keep(library_alloc(2222));
    struct row *r = row("library_alloc");
    for (int i = 0; i < 10; i++) add(&r->alloc, 2222), add(&r->live, 2222);
}

DISTINCT void called_by_jit(void) {
    keep(malloc(987));
    TOOK(987);
}

static void (*jitted)(void (*)(void));

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret: no unwind information, but a perf map. */
static void prepare_jit(void) {
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memcpy(p, code, sizeof code);
    jitted = (void (*)(void (*)(void)))(void *)p;
    static char text[256];
    snprintf(text, sizeof text, "/tmp/perf-%d.map", (int)getpid());
    int fd = open(text, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    int n = snprintf(text, sizeof text, "%lx %lx jitted_function\n", (unsigned long)p, sizeof code);
    CHECK(fd >= 0 && write(fd, text, (size_t)n) == n && close(fd) == 0);
}

static void case_jit(void) { jitted(called_by_jit); }
