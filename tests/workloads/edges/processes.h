/* fork, vfork and execve. */
#include <sys/wait.h>

DISTINCT void *before_fork(size_t size) {
    void *p = malloc(size);
    TOOK(size);
    return p;
}

DISTINCT void *in_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

static void reap(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child frees its copies of the parent's blocks and allocates: nothing of it is the parent's. */
static void case_fork(void) {
    void *p = before_fork(5000), *q = before_fork(6000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(p);
        free(in_child(7000));
        in_child(8000);
        keep(realloc(q, 20000));
        _exit(0);
    }
    reap(child);
    free(before_fork(9000));
    gave(row("before_fork"), 9000);
    row("in_child");
}

/* A vfork child's exit and exec are not its parent's, though they share the address space. */
static void case_vfork(void) {
    before_fork(5000);
    pid_t child = vfork();
    if (child == 0) _exit(0);
    CHECK(child > 0);
    reap(child);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(child > 0);
    reap(child);
    before_fork(6000);
}

DISTINCT void old_image(void) {
    keep(malloc(40000));
    TOOK(40000);
}

DISTINCT void new_image(void) {
    keep(malloc(30000));
    TOOK(30000);
}

/* execve of itself as case exec2, which asks to go on a second time. */
static void case_exec(void) {
    old_image();
    execl(self_path, self_path, "exec2", (char *)NULL);
    fail("execl");
}

static void case_exec2(void) { new_image(); }
