/* realloc and reallocarray in every way. */

DISTINCT void realloc_fails(void) {
    char *p = malloc(1000);
    TOOK(1000);
    CHECK(realloc(p, huge) == NULL && errno == ENOMEM);
    keep(p);
}

DISTINCT void realloc_fails_then_freed(void) {
    char *p = malloc(1008);
    TOOK(1008);
    CHECK(realloc(p, huge) == NULL);
    free(p);
    GAVE(1008);
}

DISTINCT void realloc_shrinks(void) {
    char *p = malloc(10000);
    TOOK(10000);
    char *q = realloc(p, 100);
    CHECK(q == p);
    GAVE(10000);
    TOOK(100);
}

DISTINCT void realloc_in_place(void) {
    char *p = malloc(100);
    TOOK(100);
    char *q = realloc(p, 104);
    CHECK(q == p);
    GAVE(100);
    TOOK(104);
}

DISTINCT void realloc_moves(void) {
    char *p = malloc(3000);
    TOOK(3000);
    char *wall = malloc(3000);
    TOOK(3000);
    char *q = realloc(p, 50000);
    CHECK(q != p);
    keep(wall);
    GAVE(3000);
    TOOK(50000);
}

DISTINCT void realloc_mremaps(void) {
    char *p = malloc(1 << 20);
    TOOK(1 << 20);
    char *q = realloc(p, 2 << 20);
    CHECK(q != NULL);
    GAVE(1 << 20);
    TOOK(2 << 20);
}

DISTINCT void realloc_null(void) {
    keep(realloc(NULL, 77));
    TOOK(77);
}

DISTINCT void realloc_zero(void) {
    char *p = malloc(55);
    TOOK(55);
    CHECK(realloc(p, 0) == NULL);
    GAVE(55);
}

DISTINCT void reallocarray_grows(void) {
    char *p = malloc(100);
    TOOK(100);
    keep(reallocarray(p, 30, 50));
    GAVE(100);
    TOOK(1500);
}

DISTINCT void reallocarray_null(void) {
    keep(reallocarray(NULL, 3, 11));
    TOOK(33);
}

DISTINCT void reallocarray_overflows(void) {
    char *p = malloc(200);
    TOOK(200);
    CHECK(reallocarray(p, huge, 8) == NULL && errno == ENOMEM);
    keep(p);
}

static void case_realloc(void) {
    realloc_fails();
    realloc_fails_then_freed();
    realloc_shrinks();
    realloc_in_place();
    realloc_moves();
    realloc_mremaps();
    realloc_null();
    realloc_zero();
    reallocarray_grows();
    reallocarray_null();
    reallocarray_overflows();
}
