/*
 * A service that grows: a page cache without a limit, beside work that gives its memory back.
 * Runs until its standard input ends, and keeps less than 300 MB.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT_MAX 30000
#define PAGE_BYTES 6000

static char *pages[KEPT_MAX];
static char *words[KEPT_MAX][8];
static char *log_buffer;
static size_t log_length, log_room;

/* Memory of `bytes`, all of it touched; the program ends without. */
static char *taken(char *memory, size_t bytes)
{
    if (!memory) {
        perror("allocate");
        exit(1);
    }
    return memset(memory, 'x', bytes);
}

/* Keeps every page: the leak that the profile shows. */
static void cache_page(unsigned number)
{
    free(pages[number % KEPT_MAX]);
    pages[number % KEPT_MAX] = taken(malloc(PAGE_BYTES), PAGE_BYTES);
}

/* Keeps a few small objects for every page. */
static void index_words(unsigned number)
{
    for (unsigned word = 0; word < 8; word++) {
        char **kept = &words[number % KEPT_MAX][word];
        free(*kept);
        *kept = taken(calloc(1, 24 + word), 24 + word);
    }
}

/* Builds a large tree and drops it. */
static void parse_feed(void)
{
    char *nodes[200];
    for (unsigned node = 0; node < 200; node++)
        nodes[node] = taken(malloc(80), 80);
    for (unsigned node = 0; node < 200; node++)
        free(nodes[node]);
}

/* Grows a buffer and now and then starts again. */
static void write_log(void)
{
    if (log_length + 64 > log_room) {
        log_room = log_room ? 2 * log_room : 4096;
        char *grown = realloc(log_buffer, log_room);
        log_buffer = grown;
        taken(grown ? grown + log_length : NULL, log_room - log_length);
    }
    log_length += 64;
    if (log_length > 4u << 20) {
        free(log_buffer);
        log_buffer = NULL;
        log_length = log_room = 0;
    }
}

int main(void)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    for (unsigned number = 0; poll(&input, 1, 20) == 0;) {
        for (unsigned i = 0; i < 30; i++, number++) {
            cache_page(number);
            index_words(number);
            parse_feed();
            write_log();
        }
    }
    return 0;
}
