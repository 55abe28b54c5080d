/* Processes: forks while threads allocate, vfork, posix_spawn, programs that replace themselves. */

static atomic_int stop;

static void *allocating(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    void *blocks[64] = {0};
    while (!stop) {
        unsigned at = next(&state) % 64;
        if (blocks[at]) ended(blocks[at]);
        blocks[at] = made(next(&state) % 2000);
    }
    for (int i = 0; i < 64; i++)
        if (blocks[i]) ended(blocks[i]);
    return NULL;
}

static int status_of(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
    return status;
}

/* A child frees what it has inherited, allocates, and starts a thread that does so. */
static void child(void **blocks, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += ended(blocks[i]);
    for (size_t i = 0; i < 2000; i++) ended(made(i));
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocating, (void *)(uintptr_t)getpid()) == 0) {
        stop = 1;
        pthread_join(thread, NULL);
    }
    _exit(bytes == (size_t)count * 777 ? 7 : 3);
}

static void case_fork(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(threads + i, NULL, allocating, (void *)i) == 0);
    int good = 0;
    for (int i = 0; i < 60; i++) {
        void *blocks[100];
        for (int k = 0; k < 100; k++) blocks[k] = made(777);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(blocks, 100);
        for (int k = 0; k < 100; k++) ended(blocks[k]);
        int status = status_of(pid);
        CHECK(WIFEXITED(status));
        good += WEXITSTATUS(status) == 7;
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("fork %d\n", good);
}

__attribute__((noinline)) static pid_t in_vfork(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    return pid;
}

static void case_vfork(void) {
    int good = 0;
    for (int i = 0; i < 100; i++) {
        void *p = made(5000);
        pid_t pid = in_vfork();
        CHECK(pid > 0);
        good += status_of(pid) == 0;
        ended(p);
    }
    printf("vfork %d\n", good);
}

static void case_spawn(void) {
    int good = 0;
    for (int i = 0; i < 100; i++) {
        char *arguments[] = {"true", NULL};
        pid_t pid;
        CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0);
        good += status_of(pid) == 0;
    }
    printf("spawn %d\n", good);
}

/* ARGUMENT more times. */
static void case_exec(void) {
    int more = argument ? atoi(argument) : 20;
    for (size_t i = 0; i < 1000; i++) ended(made(i));
    if (more == 0) {
        printf("exec\n");
        return;
    }
    char text[16];
    snprintf(text, sizeof text, "%d", more - 1);
    execl(self_path, self_path, "exec", text, (char *)NULL);
    _exit(9);
}
