/* siblings raw|thread CHILDREN: makes CHILDREN processes, one after another, once its input says so. All of them allocate the same.
 *
 *   raw      by the system call, past libc's fork; the child's first thread allocates
 *   thread   by fork; the child's first thread takes one large block, which is surely sampled; then a new thread allocates, on
 *            the stack of a thread that the parent had */
#include "protocol.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

DISTINCT static void *allocate(void *nothing) {
    for (int i = 0; i < 20000; i++) {
        void *block = malloc(1024);
        keep(block);
        free(block);
    }
    return nothing;
}

static void in_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate, NULL)) _exit(3);
    pthread_join(thread, NULL);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int is_raw = !strcmp(arguments[1], "raw");
    await_go();
    is_raw ? (void)allocate(NULL) : in_thread();
    for (long i = 0; i < atol(arguments[2]); i++) {
        pid_t pid = is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        if (pid < 0) return 1;
        if (pid == 0) {
            if (is_raw) allocate(NULL);
            else {
                void *large = malloc(64 << 20);
                keep(large);
                free(large);
                in_thread();
            }
            _exit(0);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status) return 1;
    }
    say_truth(NULL, 0);
    await_line();
    return 0;
}
