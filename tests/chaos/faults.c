/* A library that a command loads before libc (LD_PRELOAD): it counts the operations that change files below one folder,
 * and at a chosen one it kills the process group, or the disk is full from then on.
 *
 *     CHAOS_FOLDER   the folder
 *     CHAOS_COUNT    a file of sizeof(struct count) zero bytes, which all processes of the command share
 *     CHAOS_FAULT    none, before, half or full
 *     CHAOS_AT       the number of the operation, from 1 on
 *
 * before: SIGKILL before the operation.  half: the next write is done by half, then SIGKILL.  full: a write is done by half, and
 * from then on all that needs space fails with ENOSPC.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct count {
    uint64_t operations; /* done or begun */
    uint64_t hit;        /* 1 after the fault */
    char name[32];       /* of the operation that was hit */
    char path[256];      /* and the end of its path */
};

enum fault { NONE, BEFORE, HALF, FULL };
enum verdict { GO, GO_HALF, REFUSE };

static struct count *count;
static char folder[PATH_MAX];
static size_t folder_length;
static enum fault fault;
static uint64_t at;

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void prepare(void) {
    const char *where = getenv("CHAOS_FOLDER"), *shared = getenv("CHAOS_COUNT"), *kind = getenv("CHAOS_FAULT"),
               *number = getenv("CHAOS_AT");
    if (!where || !shared || strlen(where) >= sizeof folder) return;
    int file = NEXT(open)(shared, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return;
    strcpy(folder, where);
    folder_length = strlen(folder);
    if (kind && !strcmp(kind, "before")) fault = BEFORE;
    if (kind && !strcmp(kind, "half")) fault = HALF;
    if (kind && !strcmp(kind, "full")) fault = FULL;
    at = number ? strtoull(number, NULL, 10) : 0;
    count = memory;
}

static int is_inside(const char *path) {
    char full[PATH_MAX];
    if (!count || !path) return 0;
    if (path[0] != '/') {
        if (!getcwd(full, sizeof full) || strlen(full) + strlen(path) + 2 > sizeof full) return 0;
        strcat(strcat(full, "/"), path);
        path = full;
    }
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static int is_file_inside(int file, char *path) {
    char link[64];
    if (!count) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_inside(path);
}

/* Counts an operation, and decides what becomes of it. */
static enum verdict decide(const char *name, const char *path, int is_write, int needs_space) {
    uint64_t number = __atomic_add_fetch(&count->operations, 1, __ATOMIC_SEQ_CST);
    if (fault == NONE || number < at || (fault == HALF && !is_write) || (fault == FULL && !needs_space)) return GO;
    int is_first = !__atomic_exchange_n(&count->hit, 1, __ATOMIC_SEQ_CST);
    if (is_first) {
        size_t length = strlen(path);
        snprintf(count->name, sizeof count->name, "%s", name);
        snprintf(count->path, sizeof count->path, "%s", length < sizeof count->path ? path : path + length - 255);
    }
    if (fault == BEFORE) {
        kill(0, SIGKILL);
        pause();
    }
    if (fault == HALF || (is_first && is_write)) return GO_HALF;
    return REFUSE;
}

static ssize_t end_half(ssize_t written) {
    if (fault == HALF) {
        kill(0, SIGKILL);
        pause();
    }
    return written;
}

static int refuse(void) {
    errno = ENOSPC;
    return -1;
}

#define WRITE(name, call, full_call)                                                                                   \
    char path[PATH_MAX];                                                                                               \
    if (!is_file_inside(file, path)) return full_call;                                                                 \
    switch (decide(name, path, bytes > 1, 1)) {                                                                        \
    case GO_HALF: bytes /= 2; return end_half(call);                                                                   \
    case REFUSE: return refuse();                                                                                      \
    default: return full_call;                                                                                         \
    }

ssize_t write(int file, const void *data, size_t bytes) {
    WRITE("write", NEXT(write)(file, data, bytes), NEXT(write)(file, data, bytes))
}
ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
    WRITE("write", NEXT(pwrite)(file, data, bytes, offset), NEXT(pwrite)(file, data, bytes, offset))
}
ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) {
    WRITE("write", NEXT(pwrite64)(file, data, bytes, offset), NEXT(pwrite64)(file, data, bytes, offset))
}

#define ON_FILE(name, needs_space, call)                                                                               \
    char path[PATH_MAX];                                                                                               \
    if (is_file_inside(file, path) && decide(name, path, 0, needs_space) == REFUSE) return refuse();                   \
    return call;

int fsync(int file) { ON_FILE("fsync", 1, NEXT(fsync)(file)) }
int fdatasync(int file) { ON_FILE("fsync", 1, NEXT(fdatasync)(file)) }
int ftruncate(int file, off_t length) { ON_FILE("truncate", 0, NEXT(ftruncate)(file, length)) }
int ftruncate64(int file, off64_t length) { ON_FILE("truncate", 0, NEXT(ftruncate64)(file, length)) }

#define ON_PATH(name, path, needs_space, call)                                                                         \
    if (is_inside(path) && decide(name, path, 0, needs_space) == REFUSE) return refuse();                              \
    return call;

int rename(const char *from, const char *to) { ON_PATH("rename", to, 1, NEXT(rename)(from, to)) }
int renameat(int a, const char *from, int b, const char *to) { ON_PATH("rename", to, 1, NEXT(renameat)(a, from, b, to)) }
int unlink(const char *path) { ON_PATH("unlink", path, 0, NEXT(unlink)(path)) }
int unlinkat(int at_folder, const char *path, int flags) { ON_PATH("unlink", path, 0, NEXT(unlinkat)(at_folder, path, flags)) }
int link(const char *from, const char *to) { ON_PATH("link", to, 1, NEXT(link)(from, to)) }
int mkdir(const char *path, mode_t mode) { ON_PATH("mkdir", path, 1, NEXT(mkdir)(path, mode)) }

/* Opening is an operation only if it makes a file. */
#define OPEN(name)                                                                                                     \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
        if (is_inside(path) && access(path, F_OK) != 0 && decide("create", path, 0, 1) == REFUSE) return refuse();     \
    }

int open(const char *path, int flags, ...) { OPEN() return NEXT(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { OPEN() return NEXT(open64)(path, flags, mode); }
int openat(int at_folder, const char *path, int flags, ...) { OPEN() return NEXT(openat)(at_folder, path, flags, mode); }
int openat64(int at_folder, const char *path, int flags, ...) { OPEN() return NEXT(openat64)(at_folder, path, flags, mode); }
