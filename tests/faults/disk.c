/* Stands between a process and its files below one folder: writes down what it asks of the disk, and lets chosen
   requests fail. It is loaded with LD_PRELOAD; `disk.py` builds it and reads what it wrote down.

   DISK_FOLDER  the folder it watches
   DISK_LOG     where it writes requests down, in order; a sync is written down before it is done, so that nothing
                is taken for safe too early */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name) static __typeof__(name) *next; if (!next) next = dlsym(RTLD_NEXT, #name)

struct __attribute__((packed)) request { char kind; uint32_t name; int64_t offset; uint32_t size; };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static int log_fd = -1, fail_with, fail_on;
static long requests, fail_nth;

__attribute__((constructor)) static void begin(void) {
    folder = getenv("DISK_FOLDER");
    const char *log = getenv("DISK_LOG");
    if (log) log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* Let the nth request from now on fail with an error number, and all after it if `on` is not 0; 0 ends it. */
void disk_fail(long nth, int error, int on) {
    pthread_mutex_lock(&turn);
    if (nth) requests = 0;
    fail_nth = nth, fail_with = error, fail_on = on;
    pthread_mutex_unlock(&turn);
}

/* How many requests there were since a fault was last asked for. */
long disk_requests(void) { return requests; }

static void put(const void *data, size_t size) {
    static ssize_t (*out)(int, const void *, size_t);
    if (!out) out = dlsym(RTLD_NEXT, "write");
    for (const char *at = data; size;) {
        ssize_t done = out(log_fd, at, size);
        if (done < 0) abort();
        at += done, size -= (size_t)done;
    }
}

/* 0 if the request may go on; else errno says why it fails. */
static int refused(char kind, const char *name, int64_t offset, const void *data, size_t size) {
    pthread_mutex_lock(&turn);
    requests++;
    int fails = fail_nth && (requests == fail_nth || (fail_on && requests > fail_nth));
    if (!fails && log_fd >= 0) {
        struct request head = {kind, (uint32_t)strlen(name), offset, (uint32_t)size};
        put(&head, sizeof head), put(name, head.name), put(data, size);
    }
    if (fails) errno = fail_with;
    pthread_mutex_unlock(&turn);
    return fails;
}

static int below(const char *name) { return folder && !strncmp(name, folder, strlen(folder)); }

/* The name of an open file, or NULL if it is none of those that are watched. */
static const char *watched(int fd, char *name) {
    char link[40];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = folder ? readlink(link, name, PATH_MAX - 1) : -1;
    errno = before;
    if (size < 0) return NULL;
    name[size] = 0;
    return below(name) ? name : NULL;
}

#define WATCH(kind, fd, offset, data, size) \
    char path[PATH_MAX]; \
    const char *name = watched(fd, path); \
    if (name && refused(kind, name, offset, data, size)) return -1

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    NEXT(pwrite);
    WATCH('w', fd, at, data, size);
    return next(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write);
    char path[PATH_MAX];
    const char *name = watched(fd, path);
    if (name) {
        int whence = fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR;
        if (refused('w', name, lseek(fd, 0, whence), data, size)) return -1;
    }
    return next(fd, data, size);
}

int ftruncate(int fd, off_t size) {
    NEXT(ftruncate);
    WATCH('t', fd, size, "", 0);
    return next(fd, size);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fsync(int fd) {
    NEXT(fsync);
    WATCH('s', fd, 0, "", 0);
    return next(fd);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    WATCH('s', fd, 0, "", 0);
    return next(fd);
}

int unlink(const char *name) {
    NEXT(unlink);
    if (below(name) && refused('u', name, 0, "", 0)) return -1;
    return next(name);
}
