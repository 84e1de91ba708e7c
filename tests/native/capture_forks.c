/* capture_forks.c BEHAVIOR FOLDER ROUNDS - a forked child does not touch inherited state, and records for itself on request. */
#include "capture_check.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static _Atomic int going = 1;

static void *record_until_told(void *unused) {
    char text[32];
    for (unsigned i = 0; going; i++) {
        snprintf(text, sizeof text, "name %u", i % 5000);
        uint32_t name = name_of(text);
        postrun_begin(name, i);
        uint64_t handle = postrun_range_begin(name, i);
        postrun_range_end(handle);
        postrun_end();
        postrun_metadata("key", text);
        if (i % 16 == 0) {
            usleep(1000);
        }
    }
    return unused;
}

static void waited(pid_t pid) {
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    EQUAL(WIFSIGNALED(status) ? WTERMSIG(status) : 0, 0); /* 14: a lock was never released */
    CHECK(WIFEXITED(status));
    EQUAL(WEXITSTATUS(status), 0);
}

static uint64_t inherited;

static void child_does_nothing(void) {
    alarm(20); /* a lock that is never released would end here */
    EQUAL(postrun_recording(), 0);
    postrun_end();
    EQUAL(postrun_range_end(inherited), -EINVAL);
    postrun_begin(name_of("child"), 1);
    name_of("a name of the child");
    postrun_counter(name_of("child"), 1);
    postrun_end();
    EQUAL(postrun_metadata("child", "yes"), 0);
    EQUAL(postrun_flush(), 0);
    EQUAL(postrun_stop(), -EALREADY);
    EQUAL(statistics().recorded, 0);
}

static void child_follows(int i) {
    alarm(20);
    EQUAL(postrun_recording(), 1); /* with its first record */
    postrun_end(); /* of a range of the parent: nothing */
    char path[4096];
    EQUAL(postrun_path(path, sizeof path), -ENOENT);
    postrun_begin(name_of("child"), i);
    postrun_end();
    EQUAL(postrun_range_end(inherited), -EINVAL);
    uint64_t handle = postrun_range_begin(name_of("handle of the child"), i);
    CHECK(handle != inherited);
    EQUAL(postrun_range_end(handle), 0);
    CHECK(postrun_path(path, sizeof path) > 0);
    EQUAL(postrun_stop(), 0);
    postrun_statistics s = statistics();
    EQUAL(s.written, 2);
    EQUAL(s.unbalanced, 0);
    EQUAL(postrun_stop(), -EALREADY);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *behavior = argv[1];
    int rounds = atoi(argv[3]);
    int follow = strcmp(behavior, "follow") == 0 || strcmp(behavior, "children") == 0 || strcmp(behavior, "exit") == 0;
    int alone = getenv("ALONE") != NULL; /* a sanitizer's malloc may be locked for ever in the child of several busy threads */
    configure(argv[2], 1024, alone ? 60000 : 1, 0, follow ? POSTRUN_FOLLOW_FORK : 0);
    EQUAL(postrun_start(), 0);
    if (alone) {
        wait_until_others_sleep();
    }
    pthread_t threads[2];
    int busy = !alone && strcmp(behavior, "quiet") != 0;
    for (int i = 0; busy && i < 2; i++) {
        EQUAL(pthread_create(&threads[i], NULL, record_until_told, NULL), 0);
    }
    uint32_t name = name_of("parent");
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name, i);
        inherited = postrun_range_begin(name, i);
        char path[4096];
        pid_t pid = 0;
        if (strcmp(behavior, "exec") == 0) {
            pid = fork();
            if (pid == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(1);
            }
        } else if (strcmp(behavior, "spawn") == 0) {
            char *const arguments[] = {"true", NULL};
            EQUAL(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ), 0);
        } else if (strcmp(behavior, "vfork") == 0) {
            pid = vfork();
            if (pid == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(1);
            }
        } else if (strcmp(behavior, "raw") == 0) { /* a fork that calls no handlers */
            pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (pid == 0) {
                alarm(20);
                postrun_begin(name, i);
                postrun_end();
                EQUAL(postrun_flush(), 0);
                EQUAL(postrun_stop(), -EALREADY);
                _exit(0);
            }
        } else if (strcmp(behavior, "own") == 0) { /* starts a session of its own */
            pid = fork();
            if (pid == 0) {
                alarm(20);
                EQUAL(postrun_start(), 0);
                postrun_begin(name_of("child"), i);
                postrun_end();
                EQUAL(postrun_stop(), 0);
                EQUAL(statistics().written, 1);
                _exit(0);
            }
        } else if (strcmp(behavior, "follow") == 0) {
            pid = fork();
            if (pid == 0) {
                child_follows(i);
                _exit(0);
            }
        } else if (strcmp(behavior, "children") == 0) { /* children of children; most record nothing and make no file */
            pid = fork();
            if (pid == 0) {
                alarm(20);
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    child_follows(i);
                    _exit(0);
                }
                waited(grandchild);
                EQUAL(postrun_path(path, sizeof path), -ENOENT);
                EQUAL(postrun_stop(), 0); /* will not record */
                EQUAL(postrun_recording(), 0);
                _exit(0);
            }
        } else if (strcmp(behavior, "exit") == 0) { /* leaves through exit(), which stops the session */
            pid = fork();
            if (pid == 0) {
                alarm(20);
                postrun_begin(name_of("child"), i);
                postrun_end();
                exit(0);
            }
        } else {
            pid = fork();
            if (pid == 0) {
                child_does_nothing();
                exit(0); /* with the library's destructor */
            }
        }
        CHECK(pid > 0);
        waited(pid);
        EQUAL(postrun_range_end(inherited), 0);
        postrun_end();
    }
    going = 0;
    for (int i = 0; busy && i < 2; i++) {
        EQUAL(pthread_join(threads[i], NULL), 0);
    }
    EQUAL(postrun_stop(), 0);
    postrun_statistics s = statistics();
    EQUAL(s.unbalanced, 0);
    EQUAL(s.recorded, s.written);
    tell_statistics();
    return 0;
}
