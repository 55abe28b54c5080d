/* Eight threads in eight kinds of waiting, each of which a stop by a debugger may end with EINTR. At each line it says how many EINTR each has had. */
#include "protocol.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

enum { EPOLL, SEM, RECV, SIGNAL, SLEEP, POLL, READ, MESSAGE, KINDS };
static const char *const names[KINDS] = {
    "epoll_wait", "semtimedop", "recv", "sigtimedwait", "nanosleep", "poll", "read", "msgrcv",
};
static volatile unsigned long interrupted[KINDS];
static volatile int ends;
static int queue, set;

static long wait_once(int kind, int socket, int pipe) {
    static const struct timespec long_time = {3600, 0};
    struct epoll_event event;
    struct sembuf take = {0, -1, 0};
    struct pollfd in = {pipe, POLLIN, 0};
    struct { long kind; char text[8]; } message;
    sigset_t none;
    char byte;
    switch (kind) {
    case EPOLL: return epoll_wait(epoll_create1(0), &event, 1, 3600000);
    case SEM: return semtimedop(set, &take, 1, &long_time);
    case RECV: return recv(socket, &byte, 1, 0);
    case SIGNAL: sigemptyset(&none), sigaddset(&none, SIGUSR2); return sigtimedwait(&none, NULL, &long_time);
    case SLEEP: return nanosleep(&long_time, NULL);
    case POLL: return poll(&in, 1, 3600000);
    case READ: return read(pipe, &byte, 1);
    default: return msgrcv(queue, &message, sizeof message.text, 0, 0);
    }
}

static void *waiter(void *of) {
    int kind = (int)(long)of, sockets[2], pipes[2];
    struct timeval hour = {3600, 0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || pipe(pipes)) _exit(4);
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof hour);
    for (;;)
        if (wait_once(kind, sockets[0], pipes[0]) < 0 && errno == EINTR) interrupted[kind]++;
        else if (ends) pause();
        else _exit(5);
    return NULL;
}

int main(void) {
    pthread_t threads[KINDS];
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 1, 0600);
    for (long kind = 0; kind < KINDS; kind++) pthread_create(&threads[kind], NULL, waiter, (void *)kind);
    struct timespec moment = {0, 100000000};
    nanosleep(&moment, NULL);
    say("waiting");
    send_line();
    char line[64];
    for (;;) {
        ssize_t n = read(0, line, sizeof line);
        if (n <= 0 || strncmp(line, "exit", 4) == 0) break;
        say("{");
        for (int kind = 0; kind < KINDS; kind++)
            say("%s\"%s\":%lu", kind ? "," : "", names[kind], interrupted[kind]);
        say("}");
        send_line();
    }
    ends = 1;
    msgctl(queue, IPC_RMID, NULL), semctl(set, 0, IPC_RMID);
    _exit(0);
}
