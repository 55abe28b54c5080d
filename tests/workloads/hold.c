/* hold TID: stops one thread of another process as a debugger does, says so, and lets it go when a line comes. A thread that ends meanwhile
 * is reaped: its process has not ended before. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int tid = atoi(argv[1]);
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL)) return 3;
    if (waitpid(tid, NULL, __WALL) != tid) return 4;
    puts("stopped");
    fflush(stdout);
    struct pollfd line = {0, POLLIN, 0};
    while (poll(&line, 1, 10) == 0) {
        if (waitpid(tid, NULL, __WALL | WNOHANG) == tid) break;
    }
    return 0;
}
