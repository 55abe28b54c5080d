/* One case by name: edges CASE [ARGUMENT]. Each states what it allocated and still holds.
 *
 * For runs in which every allocation is sampled: the profile must then equal the truth.
 */
#include "protocol.h"

static struct row rows[64];
static size_t row_count;
static const char *self_path, *argument;
/* The compiler must not see which sizes cannot succeed. */
static volatile size_t huge = (size_t)1 << 62;

static struct row *row(const char *name) {
    for (size_t i = 0; i < row_count; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    rows[row_count].name = name;
    return &rows[row_count++];
}

static void fail(const char *why) {
    say("{\"error\":\"%s\"}", why);
    send_line();
    _exit(3);
}

#define CHECK(condition) do { if (!(condition)) fail(#condition); } while (0)
/* The rest of the function's name is its row's. */
#define TOOK(size) (add(&row(__func__)->alloc, size), add(&row(__func__)->live, size))
#define GAVE(size) gave(row(__func__), size)

static void gave(struct row *r, size_t size) {
    r->live.objects -= 1;
    r->live.bytes -= size;
}

#include "edges/realloc.h"
#include "edges/aligned.h"
#include "edges/odd.h"
#include "edges/processes.h"
#include "edges/threads.h"
#include "edges/stacks.h"
#include "edges/code.h"
#include "edges/plain.h"

static const struct {
    const char *name;
    void (*prepare)(void), (*run)(void);
} cases[] = {
    {"realloc", NULL, case_realloc},    {"aligned", NULL, case_aligned},
    {"odd", NULL, case_odd},            {"jumps", NULL, case_jumps},
    {"fork", NULL, case_fork},
    {"vfork", NULL, case_vfork},        {"exec", NULL, case_exec},
    {"exec2", NULL, case_exec2},        {"leader", prepare_leader, case_leader},
    {"storm", prepare_storm, case_storm}, {"signal", NULL, case_signal},
    {"deep", NULL, case_deep},          {"kinds", NULL, case_kinds},
    {"stacks", NULL, case_stacks},
    {"dlopen", NULL, case_dlopen},      {"jit", prepare_jit, case_jit},
    {"ticks", NULL, case_ticks},        {"keep", NULL, case_keep},
};

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    self_path = argv[0];
    argument = argc > 2 ? argv[2] : NULL;
    sampling_interval(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1])) continue;
        if (cases[i].prepare) cases[i].prepare();
        await_go();
        cases[i].run();
        say_truth(rows, row_count);
        await_line();
        return 0;
    }
    return 2;
}
