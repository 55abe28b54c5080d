/* Calls that allocate nothing, or that nobody would expect to. */

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
