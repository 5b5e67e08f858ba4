#include "base/file_system.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#ifdef __linux__
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#endif
#ifdef __APPLE__
#include <sys/mount.h>
#include <sys/param.h>
#endif

/* The names of those that are shared; "fuse" is also the begin of "fuse.sshfs". */
static int is_shared(const char *name)
{
    static const char *const names[] = {"9p",     "nfs",    "nfs4",   "cifs",   "smb",    "smb3",     "smbfs",   "afpfs",
                                        "webdav", "drvfs",  "vboxsf", "vmhgfs", "prl_fs", "virtiofs", "hostfs",  "AppleVirtIOFS",
                                        "ceph",   "lustre", "gpfs",   "afs",    "ocfs2",  "gfs2",     "osxfuse", "macfuse"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return strncmp(name, "fuse", 4) == 0;
}

#ifdef __linux__

/* Numbers of types (statfs(2)); several types that differ little share one. */
static const char *name_of(uint32_t type)
{
    static const struct {
        uint32_t type;
        const char *name;
    } types[] = {{0xEF53, "ext4"},       {0x58465342, "xfs"},    {0x9123683E, "btrfs"},  {0x2FC12FC1, "zfs"},    {0xCA451A4E, "bcachefs"},
                 {0xF2F52010, "f2fs"},   {0x3153464A, "jfs"},    {0x01021994, "tmpfs"},  {0x858458F6, "ramfs"},  {0x794C7630, "overlay"},
                 {0x2011BAB0, "exfat"},  {0x4D44, "vfat"},       {0x5346544E, "ntfs"},   {0x7366746E, "ntfs3"},  {0x73717368, "squashfs"},
                 {0xE0F5E1E2, "erofs"},  {0x9660, "iso9660"},    {0x15013346, "udf"},    {0xF15F, "ecryptfs"},   {0x6969, "nfs"},
                 {0xFF534D42, "cifs"},   {0xFE534D42, "smb3"},   {0x517B, "smb"},        {0x01021997, "9p"},     {0x65735546, "fuse"},
                 {0x786F4256, "vboxsf"}, {0xBACBACBC, "vmhgfs"}, {0x7C7C6673, "prl_fs"}, {0x00C0FFEE, "hostfs"}, {0x00C36400, "ceph"},
                 {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},   {0x5346414F, "afs"},    {0x7461636F, "ocfs2"},  {0x01161970, "gfs2"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

/* The name that the mount goes by, which tells virtiofs and the programs behind FUSE apart; 0: the mount is not listed. */
static int mounted_as(char *name, size_t size, int fd)
{
    struct stat st;
    char line[4096], type[64] = "";
    FILE *file = fstat(fd, &st) ? NULL : fopen("/proc/self/mountinfo", "re");
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned major, minor;
        const char *rest = strstr(line, " - "); /* between the mount's own fields and those of its file system */
        found = rest && sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 && sscanf(rest, " - %63s", type) == 1 &&
                makedev(major, minor) == st.st_dev;
    }
    if (file)
        fclose(file);
    return found && snprintf(name, size, "%s", type) > 0;
}

void k3_file_system_of(k3_file_system *out, int fd)
{
    struct statfs fs;
    *out = (k3_file_system){"unknown", 0};
    if (fstatfs(fd, &fs))
        return;
    const char *name = name_of((uint32_t)fs.f_type);
    if (name)
        snprintf(out->name, sizeof out->name, "%s", name);
    else
        snprintf(out->name, sizeof out->name, "type 0x%08x", (unsigned)fs.f_type);
    if (!name || strcmp(name, "fuse") == 0)
        (void)mounted_as(out->name, sizeof out->name, fd);
    out->is_shared = is_shared(out->name);
}

#elif defined __APPLE__

void k3_file_system_of(k3_file_system *out, int fd)
{
    struct statfs fs;
    *out = (k3_file_system){"unknown", 0};
    if (fstatfs(fd, &fs))
        return;
    snprintf(out->name, sizeof out->name, "%s", fs.f_fstypename);
    out->is_shared = !(fs.f_flags & MNT_LOCAL) || is_shared(out->name);
}

#else

void k3_file_system_of(k3_file_system *out, int fd)
{
    (void)fd;
    *out = (k3_file_system){"unknown", is_shared("unknown")};
}

#endif
