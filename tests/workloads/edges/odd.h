/* Calls that allocate nothing, or that nobody would expect to. */
#include <setjmp.h>
#include <signal.h>

DISTINCT void calloc_overflows(void) {
    CHECK(calloc(huge, 8) == NULL && errno == ENOMEM);
    CHECK(calloc(huge, 1) == NULL);
    row(__func__);
}

DISTINCT void calloc_plain(void) {
    keep(calloc(7, 13));
    TOOK(91);
    void *p = calloc(1, 300000);
    TOOK(300000);
    free(p);
    GAVE(300000);
    keep(calloc(0, 5));
    TOOK(0);
}

DISTINCT void malloc_zero(void) {
    keep(malloc(0));
    TOOK(0);
    void *p = malloc(0);
    TOOK(0);
    free(p);
    GAVE(0);
}

DISTINCT void malloc_huge(void) {
    for (int i = 0; i < 10; i++) CHECK(malloc(huge) == NULL);
    row(__func__);
}

DISTINCT void free_null(void) {
    for (int i = 0; i < 10; i++) free(NULL);
    row(__func__);
}

DISTINCT void copies_string(void) {
    keep(strdup("twenty-one characters"));
    TOOK(22);
}

static void case_odd(void) {
    calloc_overflows();
    calloc_plain();
    malloc_zero();
    malloc_huge();
    free_null();
    copies_string();
}

static sigjmp_buf before_call;

static void jumps_back(int signal) {
    (void)signal;
    siglongjmp(before_call, 1);
}

/* Each call takes a block, has nowhere to say so, and never returns. */
DISTINCT void never_returns(void) {
    void **volatile nowhere = (void **)16;
    for (volatile int i = 0; i < 20; i++)
        if (!sigsetjmp(before_call, 1)) CHECK(posix_memalign(nowhere, 64, 100) == -1);
    row(__func__);
}

static void case_jumps(void) {
    struct sigaction action = {.sa_handler = jumps_back}, old;
    CHECK(sigaction(SIGSEGV, &action, &old) == 0);
    never_returns();
    CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
}
