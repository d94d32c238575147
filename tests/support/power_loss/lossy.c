/* A file system that loses at a power failure what was not synced: lossy LIVE DISK MODE [fuse options] MOUNTPOINT
 *
 * Programs see LIVE. DISK is what would be found after a power failure: the bytes that fsync has covered, and the names
 * that were made durable. MODE:
 *   names    names are durable after an fsync of their folder only, as POSIX promises
 *   journal  any fsync makes all names durable, as ext4 and XFS do
 *   nothing  fsync is answered and does nothing: what a program without fsync would leave
 * SIGUSR1 is the failure: a part of what was not synced reaches DISK (a torn write), nothing else does, and every
 * operation fails from then on. One thread; it runs as root.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TRY(call) return (call) == -1 ? -errno : 0
#define ALIVE if (failed) return -EIO

static char live[PATH_MAX], disk[PATH_MAX];
static enum { NAMES, JOURNAL, NOTHING } mode;
static volatile sig_atomic_t failed;

/* A file with bytes that are not on the disk: from `from` to `to`. */
struct dirty { ino_t inode; char path[PATH_MAX]; off_t from, to; struct dirty *next; };
static struct dirty *dirty;

/* A name that is not on the disk yet, in the order in which they were changed. */
struct change {
    enum { MADE, FOLDER, LINK, MOVED, GONE, FOLDER_GONE } what;
    ino_t inode; mode_t mode; uid_t uid; gid_t gid;
    char path[PATH_MAX], other[PATH_MAX];
    struct change *next;
};
static struct change *first, **last = &first;

static const char *in(const char *root, const char *path) {
    static char texts[4][2 * PATH_MAX];
    static int turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof texts[0], "%s%s", root, path);
    return text;
}

static const char *kept(ino_t inode) {
    static char text[PATH_MAX + 64];
    snprintf(text, sizeof text, "%s.files/%lu", disk, (unsigned long)inode);
    return text;
}

static void copy(const char *from, const char *to, off_t begin, off_t end) {
    static char piece[1 << 17];
    int source = open(from, O_RDONLY), target = open(to, O_WRONLY);
    while (source >= 0 && target >= 0 && begin < end) {
        size_t size = end - begin < (off_t)sizeof piece ? (size_t)(end - begin) : sizeof piece;
        ssize_t got = pread(source, piece, size, begin);
        if (got <= 0 || pwrite(target, piece, got, begin) != got) break;
        begin += got;
    }
    if (source >= 0) close(source);
    if (target >= 0) close(target);
}

static void parent(const char *path, char *folder) {
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    *(slash == folder ? slash + 1 : slash) = 0;
}

static void apply(struct change *c) {
    const char *path = in(disk, c->path);
    switch (c->what) {
    case MADE:
        if (rename(kept(c->inode), path) == -1) close(open(path, O_CREAT | O_WRONLY, 0600));
        if (chown(path, c->uid, c->gid) == 0) chmod(path, c->mode);
        break;
    case FOLDER:
        mkdir(path, 0700);
        if (chown(path, c->uid, c->gid) == 0) chmod(path, c->mode);
        break;
    case LINK:
        if (symlink(c->other, path) == 0 && lchown(path, c->uid, c->gid) == -1) perror("lchown");
        break;
    case MOVED: rename(path, in(disk, c->other)); break;
    case GONE: unlink(path); break;
    case FOLDER_GONE: rmdir(path); break;
    }
}

/* Makes the changed names of a folder durable; of all if it is null. */
static void settle(const char *folder) {
    struct change **place = &first;
    while (*place) {
        struct change *c = *place;
        char of[PATH_MAX], other[PATH_MAX] = "";
        parent(c->path, of);
        if (c->what == MOVED) parent(c->other, other);
        if (!folder || !strcmp(of, folder) || !strcmp(other, folder)) {
            apply(c);
            *place = c->next;
            free(c);
        } else place = &c->next;
    }
    last = place;
}

static void note(int what, const char *path, const char *other, mode_t how) {
    struct change *c = calloc(1, sizeof *c);
    struct stat s;
    struct fuse_context *by = fuse_get_context();
    c->what = what;
    c->inode = lstat(in(live, path), &s) == 0 ? s.st_ino : 0;
    c->mode = how;
    c->uid = by->uid;
    c->gid = by->gid;
    strcpy(c->path, path);
    if (other) strcpy(c->other, other);
    *last = c;
    last = &c->next;
}

static struct dirty *find(ino_t inode) {
    struct dirty *d = dirty;
    while (d && d->inode != inode) d = d->next;
    return d;
}

static void soil(int file, const char *path, off_t from, off_t to) {
    struct stat s;
    fstat(file, &s);
    struct dirty *d = find(s.st_ino);
    if (!d) {
        d = calloc(1, sizeof *d);
        d->inode = s.st_ino;
        strcpy(d->path, path);
        d->from = from;
        d->next = dirty;
        dirty = d;
    }
    if (from < d->from) d->from = from;
    if (to > d->to) d->to = to;
}

static void clean(ino_t inode) {
    for (struct dirty **place = &dirty; *place; place = &(*place)->next)
        if ((*place)->inode == inode) {
            struct dirty *d = *place;
            *place = d->next;
            free(d);
            return;
        }
}

static void fail(int number) {
    (void)number;
    if (failed) return;
    failed = 1;
    srand(getpid());
    if (mode != NOTHING)
        for (struct dirty *d = dirty; d; d = d->next)
            copy(in(live, d->path), in(disk, d->path), d->from, d->from + (d->to - d->from) * (rand() % 100) / 100);
}

/* ---------------------------------------------------------------- operations */

static int get_attributes(const char *path, struct stat *s, struct fuse_file_info *f) {
    (void)f;
    ALIVE;
    TRY(lstat(in(live, path), s));
}

static int read_link(const char *path, char *text, size_t size) {
    ALIVE;
    ssize_t length = readlink(in(live, path), text, size - 1);
    if (length == -1) return -errno;
    text[length] = 0;
    return 0;
}

static int make_folder(const char *path, mode_t how) {
    ALIVE;
    if (mkdir(in(live, path), how) == -1) return -errno;
    struct fuse_context *by = fuse_get_context();
    if (lchown(in(live, path), by->uid, by->gid) == -1) return -errno;
    note(FOLDER, path, 0, how);
    return 0;
}

static int make_link(const char *to, const char *path) {
    ALIVE;
    if (symlink(to, in(live, path)) == -1) return -errno;
    note(LINK, path, to, 0777);
    return 0;
}

static int remove_file(const char *path) {
    ALIVE;
    struct stat s;
    if (lstat(in(live, path), &s) == 0 && s.st_nlink == 1) clean(s.st_ino);
    note(GONE, path, 0, 0);
    TRY(unlink(in(live, path)));
}

static int remove_folder(const char *path) {
    ALIVE;
    if (rmdir(in(live, path)) == -1) return -errno;
    note(FOLDER_GONE, path, 0, 0);
    return 0;
}

static int move(const char *path, const char *to, unsigned flags) {
    ALIVE;
    if (flags) return -EINVAL;
    if (rename(in(live, path), in(live, to)) == -1) return -errno;
    note(MOVED, path, to, 0);
    size_t length = strlen(path);
    for (struct dirty *d = dirty; d; d = d->next)
        if (!strncmp(d->path, path, length) && (!d->path[length] || d->path[length] == '/')) {
            char rest[PATH_MAX];
            strcpy(rest, d->path + length);
            snprintf(d->path, sizeof d->path, "%.2000s%.2000s", to, rest);
        }
    return 0;
}

static int change_mode(const char *path, mode_t how, struct fuse_file_info *f) {
    (void)f;
    ALIVE;
    chmod(in(disk, path), how);
    for (struct change *c = first; c; c = c->next)
        if (!strcmp(c->path, path)) c->mode = how;
    TRY(chmod(in(live, path), how));
}

static int change_owner(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *f) {
    (void)f;
    ALIVE;
    if (lchown(in(disk, path), uid, gid) == -1 && errno != ENOENT) return -errno;
    for (struct change *c = first; c; c = c->next)
        if (!strcmp(c->path, path)) c->uid = uid, c->gid = gid;
    TRY(lchown(in(live, path), uid, gid));
}

static int cut(const char *path, off_t size, struct fuse_file_info *f) {
    (void)f;
    ALIVE;
    int file = open(in(live, path), O_WRONLY);
    if (file == -1) return -errno;
    int result = ftruncate(file, size) == -1 ? -errno : 0;
    soil(file, path, size, size);
    close(file);
    return result;
}

static int set_times(const char *path, const struct timespec times[2], struct fuse_file_info *f) {
    (void)f;
    ALIVE;
    TRY(utimensat(AT_FDCWD, in(live, path), times, AT_SYMLINK_NOFOLLOW));
}

static int create_file(const char *path, mode_t how, struct fuse_file_info *f) {
    ALIVE;
    struct stat s;
    int is_new = lstat(in(live, path), &s) == -1;
    int file = open(in(live, path), (f->flags & ~O_APPEND) | O_CREAT, how);
    if (file == -1) return -errno;
    struct fuse_context *by = fuse_get_context();
    if (is_new) {
        if (fchown(file, by->uid, by->gid) == -1) return -errno;
        note(MADE, path, 0, how);
    }
    soil(file, path, 0, 0);
    f->fh = file;
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *f) {
    ALIVE;
    int file = open(in(live, path), f->flags & ~O_APPEND);
    if (file == -1) return -errno;
    if (f->flags & O_TRUNC) soil(file, path, 0, 0);
    f->fh = file;
    return 0;
}

static int read_file(const char *path, char *data, size_t size, off_t at, struct fuse_file_info *f) {
    (void)path;
    ALIVE;
    ssize_t got = pread(f->fh, data, size, at);
    return got == -1 ? -errno : got;
}

static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *f) {
    ALIVE;
    ssize_t put = pwrite(f->fh, data, size, at);
    if (put == -1) return -errno;
    soil(f->fh, path, at, at + put);
    return put;
}

static int reserve(const char *path, int how, off_t at, off_t size, struct fuse_file_info *f) {
    ALIVE;
    if (fallocate(f->fh, how, at, size) == -1) return -errno;
    soil(f->fh, path, at, at + size);
    return 0;
}

static int sync_file(const char *path, int data_only, struct fuse_file_info *f) {
    (void)path, (void)data_only;
    ALIVE;
    if (mode == NOTHING) return 0;
    if (mode == JOURNAL) settle(0);
    struct stat s;
    fstat(f->fh, &s);
    struct dirty *d = find(s.st_ino);
    if (!d) return 0;
    const char *target = in(disk, d->path);
    for (struct change *c = first; c; c = c->next)
        if (c->what == MADE && c->inode == s.st_ino) {
            target = kept(s.st_ino); /* it has no name on the disk yet */
            close(open(target, O_CREAT | O_WRONLY, 0600));
        }
    copy(in(live, d->path), target, d->from, d->to);
    if (truncate(target, s.st_size) == -1) perror(target);
    clean(s.st_ino);
    return 0;
}

static int sync_folder(const char *path, int data_only, struct fuse_file_info *f) {
    (void)data_only, (void)f;
    ALIVE;
    if (mode != NOTHING) settle(mode == JOURNAL ? 0 : path);
    return 0;
}

static int close_file(const char *path, struct fuse_file_info *f) {
    (void)path;
    close(f->fh);
    return 0;
}

static int list(const char *path, void *buffer, fuse_fill_dir_t add, off_t at, struct fuse_file_info *f,
                enum fuse_readdir_flags flags) {
    (void)at, (void)f, (void)flags;
    ALIVE;
    DIR *folder = opendir(in(live, path));
    if (!folder) return -errno;
    for (struct dirent *entry; (entry = readdir(folder));) add(buffer, entry->d_name, 0, 0, 0);
    closedir(folder);
    return 0;
}

static int figures(const char *path, struct statvfs *s) {
    ALIVE;
    TRY(statvfs(in(live, path), s));
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->use_ino = 1;
    signal(SIGUSR1, fail);
    return 0;
}

static const struct fuse_operations operations = {
    .init = begin, .getattr = get_attributes, .readlink = read_link, .mkdir = make_folder, .symlink = make_link,
    .unlink = remove_file, .rmdir = remove_folder, .rename = move, .chmod = change_mode, .chown = change_owner,
    .truncate = cut, .utimens = set_times, .create = create_file, .open = open_file, .read = read_file,
    .write = write_file, .fallocate = reserve, .fsync = sync_file, .fsyncdir = sync_folder, .release = close_file,
    .readdir = list, .statfs = figures,
};

int main(int count, char **words) {
    if (count < 5 || !realpath(words[1], live) || !realpath(words[2], disk)) return 2;
    mode = !strcmp(words[3], "names") ? NAMES : !strcmp(words[3], "journal") ? JOURNAL : NOTHING;
    umask(0);
    char files[PATH_MAX + 16];
    snprintf(files, sizeof files, "%s.files", disk);
    if (mkdir(files, 0700) == -1 && errno != EEXIST) return 2;
    words[3] = words[0];
    return fuse_main(count - 3, words + 3, &operations, 0);
}
