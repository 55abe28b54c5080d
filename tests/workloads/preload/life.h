/* Before main and after it: constructors, exit handlers, thread-local destructors, libraries that come and go. */

static void *from_constructor;
static pthread_key_t key;

__attribute__((constructor(101))) static void early(void) { from_constructor = made(3000); }

__attribute__((destructor)) static void late(void) {
    if (argument) return;
    void *p = made(50);
    ended(p);
}

static void at_exit(void) {
    printf("at exit %zu\n", ended(from_constructor));
    void *p = made(100000);
    ended(p);
    fflush(stdout);
}

/* Allocates as long as the C library calls it again. */
static void of_thread(void *block) {
    size_t size = ended(block);
    if (size > 100) pthread_setspecific(key, made(size / 2));
}

static void *with_key(void *unused) {
    (void)unused;
    pthread_setspecific(key, made(5000));
    return NULL;
}

static void case_life(void) {
    CHECK(atexit(at_exit) == 0);
    CHECK(pthread_key_create(&key, of_thread) == 0);
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, with_key, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    printf("life %zu\n", checked(from_constructor));
}

/* ARGUMENT: a library with `library_alloc`. */
static void case_dlopen(void) {
    size_t bytes = 0;
    for (int i = 0; i < 500; i++) {
        void *library = dlopen(argument, RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        void *(*alloc)(size_t) = (void *(*)(size_t))(intptr_t)dlsym(library, "library_alloc");
        CHECK(alloc);
        CHECK(!dlsym(library, "no_such_function") && dlerror());
        char *p = alloc(1000 + (size_t)i);
        memset(p, 1, 1000);
        free(p);
        CHECK(dlclose(library) == 0);
        bytes += 1000 + (size_t)i;
    }
    printf("dlopen %zu\n", bytes);
}
