/* sampler_proc.c - use of the machine's cores, memory, disks and network (/proc/stat, meminfo, diskstats, net/dev, pressure). */
#define _DEFAULT_SOURCE 1
#include "sampler.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void missing(const char *key, const struct sampler *sampler, const char *file, int error) {
    char why[2 * PATH_MAX];
    const char *word = postrun_sampler_error(-error);
    if (word != NULL) {
        snprintf(why, sizeof why, "%s/%s: %s", sampler->proc, file, word);
    } else {
        snprintf(why, sizeof why, "%s/%s: error %d", sampler->proc, file, -error);
    }
    postrun_session_capability(key, why);
}

static int open_or_tell(const struct sampler *sampler, const char *key, const char *file) {
    int fd = postrun_sampler_open(sampler->proc, file);
    if (fd < 0) {
        missing(key, sampler, file, fd);
    }
    return fd;
}

/* ---------------------------------------------------------------- cores */

/* The core's record; NULL beyond the limit or without memory. */
static struct sampler_core *core_of(struct sampler *sampler, uint64_t number) {
    if (number >= SAMPLER_CORES_MAX) {
        return NULL;
    }
    if (number >= sampler->core_count) {
        size_t count = (size_t)number + 64;
        struct sampler_core *cores = realloc(sampler->cores, count * sizeof *cores);
        if (cores == NULL) {
            return NULL;
        }
        memset(cores + sampler->core_count, 0, (count - sampler->core_count) * sizeof *cores);
        sampler->cores = cores;
        sampler->core_count = count;
    }
    return &sampler->cores[number];
}

/* Idle time and I/O wait are two views of the same time: when a waiting task wakes on another core, I/O wait becomes idle time, and the
 * I/O wait counter runs backwards. Their sum does not, except for rounding each to a tick. The other counters run backwards only if they
 * were reset. */
static void compare_core(struct sampler *sampler, int32_t unit, const uint64_t now[CORE_FIELDS], const uint64_t before[CORE_FIELDS]) {
    double busy = 0;
    for (int i = 0; i < CORE_FIELDS; i++) {
        if (i == CORE_IDLE || i == CORE_IOWAIT) {
            continue;
        }
        int64_t difference = sampler_difference(now[i], before[i]);
        if (difference < 0) {
            return;
        }
        busy += (double)difference;
    }
    double waited = (double)sampler_difference(now[CORE_IOWAIT], before[CORE_IOWAIT]);
    double idle = (double)sampler_difference(now[CORE_IDLE], before[CORE_IDLE]) + waited;
    if (idle < -2) {
        return;
    }
    if (idle < 0) {
        idle = 0;
    }
    if (waited < 0) {
        waited = 0;
    }
    if (waited > idle) {
        waited = idle;
    }
    double total = busy + idle;
    if (total <= 0) {
        return;
    }
    postrun_sampler_emit(sampler, M_CPU_UTILIZATION, unit, 100 * busy / total);
    postrun_sampler_emit(sampler, M_CPU_IOWAIT, unit, 100 * waited / total);
}

static void sample_cores(struct sampler *sampler) {
    char *at;
    int64_t length = postrun_sampler_read(sampler, sampler->stat, 1, &at);
    if (length <= 0) {
        return;
    }
    const char *end = at + length;
    int begun = 0;
    for (char *line; (line = sampler_line(&at, end)) != NULL;) {
        if (strncmp(line, "cpu", 3) != 0) {
            if (begun) {
                break; /* interrupts follow, which can be long */
            }
            continue;
        }
        begun = 1;
        const char *p = line + 3;
        uint64_t number, now[CORE_FIELDS] = {0};
        if (*p == ' ' || !sampler_number(&p, &number)) { /* the sum of all cores, or no number */
            continue;
        }
        int fields = 0;
        while (fields < CORE_FIELDS && sampler_number(&p, &now[fields])) {
            fields++;
        }
        if (fields <= CORE_IDLE ||
            (fields < CORE_FIELDS && p[strspn(p, " ")] != '\0')) { /* old kernels have fewer; cut or broken ones are left out */
            continue;
        }
        struct sampler_core *core = core_of(sampler, number);
        if (core == NULL || core->seen == sampler->number) {
            continue;
        }
        sampler->anything = 1;
        if (core->seen != 0 && core->seen + 1 == sampler->number) { /* else it was offline, and the interval would be another */
            compare_core(sampler, (int32_t)number, now, core->ticks);
        }
        memcpy(core->ticks, now, sizeof now);
        core->seen = sampler->number;
    }
}

/* ---------------------------------------------------------------- memory */

static void sample_memory(struct sampler *sampler) {
    enum { TOTAL, AVAILABLE, FREE, BUFFERS, CACHED, RECLAIMABLE, SHARED, KEYS };
    static const char *const keys[KEYS] = {"MemTotal:", "MemAvailable:", "MemFree:", "Buffers:", "Cached:", "SReclaimable:", "Shmem:"};
    uint64_t value[KEYS] = {0};
    int there[KEYS] = {0};
    char *at;
    int64_t length = postrun_sampler_read(sampler, sampler->meminfo, 1, &at);
    if (length <= 0) {
        return;
    }
    const char *end = at + length;
    for (char *line; !(there[TOTAL] && there[AVAILABLE]) && (line = sampler_line(&at, end)) != NULL;) {
        for (int key = 0; key < KEYS; key++) {
            size_t size = strlen(keys[key]);
            const char *p = line + size;
            if (strncmp(line, keys[key], size) == 0 && sampler_number(&p, &value[key])) {
                there[key] = 1;
            }
        }
    }
    if (!there[TOTAL] || value[TOTAL] == 0) {
        return;
    }
    double total = (double)value[TOTAL], available;
    if (there[AVAILABLE]) {
        available = (double)value[AVAILABLE];
    } else if (there[FREE] && there[CACHED]) { /* before Linux 3.14 */
        available =
            (double)value[FREE] + (double)value[BUFFERS] + (double)value[CACHED] + (double)value[RECLAIMABLE] - (double)value[SHARED];
    } else {
        return;
    }
    if (available < 0) {
        available = 0;
    }
    if (available > total) { /* seen in containers whose memory file is made up */
        available = total;
    }
    sampler->anything = 1;
    postrun_sampler_emit(sampler, M_MEMORY_USED, -1, 100 * (total - available) / total);
}

/* ---------------------------------------------------------------- disks and network interfaces */

enum { LEFT_OUT, HARDWARE, OTHER, KINDS };

struct sum {
    double value[SAMPLER_COUNTERS];
    int devices; /* seen now */
    int compared, reset;
};

static struct sampler_device *find_device(struct sampler_devices *table, const char *name) {
    for (size_t i = 0; i < table->count; i++) {
        struct sampler_device *device = &table->device[(table->next + i) % table->count];
        if (strcmp(device->name, name) == 0) {
            table->next = (size_t)(device - table->device) + 1;
            return device;
        }
    }
    return NULL;
}

/* A record for a device that was not seen before: the record of a device that is long gone, or a new one. NULL: no memory. */
static struct sampler_device *add_device(struct sampler_devices *table, const char *name, uint64_t number) {
    struct sampler_device *device = NULL;
    for (size_t i = 0; i < table->count && device == NULL; i++) {
        if (table->device[i].seen + 1 < number) {
            device = &table->device[i];
        }
    }
    if (device == NULL) {
        if (table->count == table->capacity) {
            size_t capacity = table->capacity == 0 ? 16 : table->capacity * 2;
            if (capacity > SAMPLER_DEVICES_MAX) {
                return NULL;
            }
            struct sampler_device *grown = realloc(table->device, capacity * sizeof *grown);
            if (grown == NULL) {
                return NULL;
            }
            table->device = grown;
            table->capacity = capacity;
        }
        device = &table->device[table->count++];
    }
    memset(device, 0, sizeof *device);
    snprintf(device->name, sizeof device->name, "%s", name);
    table->next = (size_t)(device - table->device) + 1;
    return device;
}

static void count_device(struct sampler *sampler, struct sampler_device *device, const uint64_t now[SAMPLER_COUNTERS],
                         struct sum sums[KINDS]) {
    if (device->seen == sampler->number) {
        return;
    }
    struct sum *sum = &sums[device->kind];
    sum->devices++;
    if (device->seen != 0 && device->seen + 1 == sampler->number) {
        sum->compared++;
        for (int i = 0; i < SAMPLER_COUNTERS; i++) {
            int64_t difference = sampler_difference(now[i], device->value[i]);
            if (difference < 0) {
                sum->reset = 1;
            }
            sum->value[i] += (double)difference;
        }
    }
    memcpy(device->value, now, sizeof device->value);
    device->seen = sampler->number;
}

/* Whether the sums cover the interval. `broken`: a line could not be read, so a device is missing: the sums are too small now, and again
 * when it returns without a previous value. */
static int complete(const struct sampler *sampler, struct sampler_devices *table, const struct sum *sum, int broken) {
    if (broken) {
        table->broken = sampler->number;
    }
    return sum->compared > 0 && !sum->reset && (table->broken == 0 || table->broken + 1 < sampler->number) && sampler->elapsed_s > 0;
}

/* SYS/FOLDER/NAME/TAIL */
static int exists(const struct sampler *sampler, const char *folder, const char *name, const char *tail) {
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s/%s/%s", sampler->sys, folder, name, tail);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

static int starts(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

/* Whether the device is on top of other block devices, which count the same transfers. */
static int stacked(const struct sampler *sampler, const char *name) {
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/block/%s/slaves", sampler->sys, name);
    DIR *folder = length > 0 && (size_t)length < sizeof path ? opendir(path) : NULL;
    if (folder == NULL) {
        return 0;
    }
    int below = 0;
    for (struct dirent *entry; !below && (entry = readdir(folder)) != NULL;) {
        below = entry->d_name[0] != '.';
    }
    closedir(folder);
    return below;
}

/* sda1 of sda, nvme0n1p2 of nvme0n1: by name alone, if there is no sys/block. */
static int partition_of(const char *name, const char *disk) {
    size_t length = strlen(disk);
    if (length == 0 || strncmp(name, disk, length) != 0 || name[length] == '\0') {
        return 0;
    }
    const char *p = name + length;
    int digit = disk[length - 1] >= '0' && disk[length - 1] <= '9';
    if (digit && *p++ != 'p') {
        return 0;
    }
    return *p != '\0' && strspn(p, "0123456789") == strlen(p);
}

static int disk_kind(const struct sampler *sampler, const char *name) {
    static const char *const others[] = {"loop", "ram", "zram", "dm-", "md", "sr", "fd", "mtdblock"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (starts(name, others[i])) {
            return LEFT_OUT;
        }
    }
    if (starts(name, "nvme")) { /* nvme0c1n1: one path to the disk nvme0n1 */
        const char *p = name + 4 + strspn(name + 4, "0123456789");
        if (*p == 'c') {
            return LEFT_OUT;
        }
    }
    char file[SAMPLER_NAME];
    snprintf(file, sizeof file, "%s", name);
    for (char *p = file; (p = strchr(p, '/')) != NULL;) {
        *p = '!';
    }
    if (sampler->block_folder) {
        return exists(sampler, "block", file, "") && !stacked(sampler, file) ? HARDWARE : LEFT_OUT;
    }
    for (size_t i = 0; i < sampler->disks.count; i++) {
        if (partition_of(name, sampler->disks.device[i].name)) {
            return LEFT_OUT;
        }
    }
    return HARDWARE;
}

static int interface_kind(const struct sampler *sampler, const char *name) {
    if (strcmp(name, "lo") == 0) {
        return LEFT_OUT;
    }
    return strchr(name, '/') == NULL && exists(sampler, "class/net", name, "device") ? HARDWARE : OTHER;
}

static void sample_disks(struct sampler *sampler) {
    enum { READS, WRITES, SECTORS_READ, SECTORS_WRITTEN };
    struct sum sums[KINDS] = {{{0}, 0, 0, 0}};
    char *at;
    int64_t length = postrun_sampler_read(sampler, sampler->diskstats, 0, &at);
    if (length < 0) {
        return;
    }
    const char *end = at + length;
    int broken = 0;
    sampler->disks.next = 0;
    for (char *line; (line = sampler_line(&at, end)) != NULL;) {
        const char *p = line;
        uint64_t major, minor, field[7], now[SAMPLER_COUNTERS];
        if (!sampler_number(&p, &major) || !sampler_number(&p, &minor)) {
            broken = 1;
            continue;
        }
        p += strspn(p, " ");
        size_t size = strcspn(p, " ");
        if (size == 0 || size >= SAMPLER_NAME) {
            broken = 1;
            continue;
        }
        char name[SAMPLER_NAME];
        memcpy(name, p, size);
        name[size] = '\0';
        p += size;
        int fields = 0;
        while (fields < 7 && sampler_number(&p, &field[fields])) {
            fields++;
        }
        if (fields < 7) {
            broken = 1;
            continue;
        }
        now[READS] = field[0];
        now[SECTORS_READ] = field[2];
        now[WRITES] = field[4];
        now[SECTORS_WRITTEN] = field[6];
        struct sampler_device *device = find_device(&sampler->disks, name);
        if (device == NULL) {
            int kind = disk_kind(sampler, name);
            device = add_device(&sampler->disks, name, sampler->number);
            if (device == NULL) {
                broken = 1;
                continue;
            }
            device->kind = kind;
        }
        count_device(sampler, device, now, sums);
    }
    const struct sum *sum = &sums[HARDWARE];
    if (sum->devices > 0) {
        sampler->anything = 1;
    } else if (sampler->number == 1) {
        postrun_session_capability("disk", "no whole disk among the block devices");
    }
    if (!complete(sampler, &sampler->disks, sum, broken || at != end)) {
        return;
    }
    postrun_sampler_emit(sampler, M_DISK_IOPS, -1, (sum->value[READS] + sum->value[WRITES]) / sampler->elapsed_s);
    postrun_sampler_emit(sampler, M_DISK_READ, -1, 512 * sum->value[SECTORS_READ] / sampler->elapsed_s);
    postrun_sampler_emit(sampler, M_DISK_WRITE, -1, 512 * sum->value[SECTORS_WRITTEN] / sampler->elapsed_s);
}

static void sample_network(struct sampler *sampler) {
    enum { RECEIVED, TRANSMITTED };
    struct sum sums[KINDS] = {{{0}, 0, 0, 0}};
    char *at;
    int64_t length = postrun_sampler_read(sampler, sampler->net, 0, &at);
    if (length < 0) {
        return;
    }
    const char *end = at + length;
    int broken = 0;
    sampler->interfaces.next = 0;
    for (char *line; (line = sampler_line(&at, end)) != NULL;) {
        char *name = line + strspn(line, " "), *colon = strchr(name, ':');
        if (strchr(line, '|') != NULL) { /* the heading */
            continue;
        }
        if (colon == NULL || colon == name || colon - name >= SAMPLER_NAME) {
            broken = 1;
            continue;
        }
        *colon = '\0';
        const char *p = colon + 1;
        uint64_t field[9], now[SAMPLER_COUNTERS] = {0};
        int fields = 0;
        while (fields < 9 && sampler_number(&p, &field[fields])) {
            fields++;
        }
        if (fields < 9) {
            broken = 1;
            continue;
        }
        now[RECEIVED] = field[0];
        now[TRANSMITTED] = field[8];
        struct sampler_device *device = find_device(&sampler->interfaces, name);
        if (device == NULL) {
            int kind = interface_kind(sampler, name);
            device = add_device(&sampler->interfaces, name, sampler->number);
            if (device == NULL) {
                broken = 1;
                continue;
            }
            device->kind = kind;
        }
        count_device(sampler, device, now, sums);
    }
    /* Bridges, bonds, tunnels and the host's ends of container interfaces carry bytes that a hardware interface counts also. */
    const struct sum *sum = &sums[sums[HARDWARE].devices > 0 ? HARDWARE : OTHER];
    if (sum->devices > 0) {
        sampler->anything = 1;
    } else if (sampler->number == 1) {
        postrun_session_capability("network", "no network interface but the loopback");
    }
    if (!complete(sampler, &sampler->interfaces, sum, broken || at != end)) {
        return;
    }
    postrun_sampler_emit(sampler, M_NETWORK_RECEIVE, -1, sum->value[RECEIVED] / sampler->elapsed_s);
    postrun_sampler_emit(sampler, M_NETWORK_TRANSMIT, -1, sum->value[TRANSMITTED] / sampler->elapsed_s);
}

/* ---------------------------------------------------------------- pressure */

static const char *const psi_files[PSI_FILES] = {"pressure/cpu", "pressure/memory", "pressure/io"};
static const char *const psi_keys[PSI_FILES] = {"psi.cpu", "psi.memory", "psi.io"};
static const int psi_metrics[PSI_FILES][2] = {
    /* some, full; cpu has no full of the whole machine */
    {M_PSI_CPU_SOME, -1},
    {M_PSI_MEMORY_SOME, M_PSI_MEMORY_FULL},
    {M_PSI_IO_SOME, M_PSI_IO_FULL},
};

static void sample_pressure(struct sampler *sampler, enum psi_file which) {
    struct sampler_psi *psi = &sampler->psi[which];
    char *at;
    int64_t length = psi->fd < 0 ? 0 : postrun_sampler_read(sampler, psi->fd, 1, &at);
    if (length <= 0) {
        if (length < 0 && sampler->number == 1) {
            missing(psi_keys[which], sampler, psi_files[which], (int)length);
        }
        return;
    }
    const char *end = at + length;
    for (char *line; (line = sampler_line(&at, end)) != NULL;) {
        int full = strncmp(line, "full ", 5) == 0;
        const char *p = strstr(line, " total=");
        uint64_t total;
        if ((!full && strncmp(line, "some ", 5) != 0) || p == NULL) {
            continue;
        }
        p += strlen(" total=");
        if (!sampler_number(&p, &total) || psi->seen[full] == sampler->number) {
            continue;
        }
        sampler->anything = 1;
        int64_t stalled_us = sampler_difference(total, psi->total[full]);
        if (psi->seen[full] != 0 && psi->seen[full] + 1 == sampler->number && psi_metrics[which][full] >= 0 && stalled_us >= 0 &&
            sampler->elapsed_s > 0) {
            double percent = (double)stalled_us / sampler->elapsed_s / 1e4;
            postrun_sampler_emit(sampler, (enum sampler_metric)psi_metrics[which][full], -1, percent < 100 ? percent : 100);
        }
        psi->total[full] = total;
        psi->seen[full] = sampler->number;
    }
}

/* ---------------------------------------------------------------- all */

void postrun_sampler_proc_open(struct sampler *sampler) {
    sampler->stat = open_or_tell(sampler, "cpu", "stat");
    sampler->meminfo = open_or_tell(sampler, "memory", "meminfo");
    sampler->diskstats = open_or_tell(sampler, "disk", "diskstats");
    sampler->net = open_or_tell(sampler, "network", "net/dev");
    for (int i = 0; i < PSI_FILES; i++) {
        sampler->psi[i].fd = open_or_tell(sampler, psi_keys[i], psi_files[i]);
    }
    sampler->block_folder = exists(sampler, "block", "", "");
}

void postrun_sampler_proc_sample(struct sampler *sampler) {
    if (!sampler->cores_off) {
        sample_cores(sampler);
    }
    sample_memory(sampler);
    sample_disks(sampler);
    sample_network(sampler);
    for (int i = 0; i < PSI_FILES; i++) {
        sample_pressure(sampler, (enum psi_file)i);
    }
}

void postrun_sampler_proc_close(struct sampler *sampler) {
    postrun_sampler_close(&sampler->stat);
    postrun_sampler_close(&sampler->meminfo);
    postrun_sampler_close(&sampler->diskstats);
    postrun_sampler_close(&sampler->net);
    for (int i = 0; i < PSI_FILES; i++) {
        postrun_sampler_close(&sampler->psi[i].fd);
    }
    free(sampler->cores);
    free(sampler->disks.device);
    free(sampler->interfaces.device);
}
