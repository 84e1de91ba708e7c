/* sampler_cgroup.c - limits of processor time and memory of this process, and their use (control groups, versions 1 and 2).
 *
 * The process's cgroup comes from PROC/self/cgroup, its folder from the mounts of PROC/self/mountinfo. The limits of all parents apply
 * also, so the tightest of all visible levels is recorded, with the use of that level. */
#define _DEFAULT_SOURCE 1
#include "sampler.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define LIMITS_EVERY_S 5.0 /* limits seldom change */

static const char *const controllers[CGROUP_PARTS] = {"cpu", "memory"};
static const char *const keys[CGROUP_PARTS] = {"cgroup.cpu", "cgroup.memory"};
/* [version - 1][part]; NULL: none */
static const char *const limit_files[2][CGROUP_PARTS] = {{"cpu.cfs_quota_us", "memory.limit_in_bytes"}, {"cpu.max", "memory.max"}};
static const char *const period_files[2][CGROUP_PARTS] = {{"cpu.cfs_period_us", NULL}, {NULL, NULL}};
static const char *const statistic_files[2][CGROUP_PARTS] = {{"cpu.stat", "memory.usage_in_bytes"}, {"cpu.stat", "memory.current"}};

/* ---------------------------------------------------------------- where */

/* Whether a comma-separated list of words contains the word. */
static int lists(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        if (*p == ',') {
            p++;
        }
        if (strncmp(p, word, length) == 0 && (p[length] == ',' || p[length] == '\0')) {
            return 1;
        }
    }
    return 0;
}

/* Cuts the next word off, with blanks between words; NULL at the end. */
static char *word(char **at) {
    char *begin = *at + strspn(*at, " ");
    if (*begin == '\0') {
        return NULL;
    }
    char *end = begin + strcspn(begin, " ");
    *at = *end == '\0' ? end : end + 1;
    *end = '\0';
    return begin;
}

/* mountinfo writes blanks and backslashes as three octal digits. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to++ = (char)(unsigned char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

/* The path of the process's cgroup in the hierarchy of version 1 with this controller, or in that of version 2 (controller NULL). */
static int own_path(struct sampler *sampler, int fd, const char *controller, char path[PATH_MAX]) {
    char *at;
    int64_t length = postrun_sampler_read(sampler, fd, 0, &at);
    const char *end = length > 0 ? at + length : at;
    if (length <= 0) {
        return 0;
    }
    for (char *line; (line = sampler_line(&at, end)) != NULL;) { /* id:controllers:path */
        char *list = strchr(line, ':'), *own = list != NULL ? strchr(list + 1, ':') : NULL;
        if (own == NULL || own[1] != '/' || strlen(own + 1) >= PATH_MAX) {
            continue;
        }
        *own++ = '\0';
        if (controller != NULL ? lists(list + 1, controller) : list[1] == '\0') {
            snprintf(path, PATH_MAX, "%s", own);
            return 1;
        }
    }
    return 0;
}

static int is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A mount of the hierarchy: `folder` becomes the folder of `own`, or the mount's top if the mount does not show it. `top`: the length of
 * the mount's part. 2: found, 1: only the top, 0: no mount. */
static int own_folder(struct sampler *sampler, int fd, const char *controller, const char *own, char folder[PATH_MAX], size_t *top) {
    char *at;
    int64_t length = postrun_sampler_read(sampler, fd, 0, &at);
    int found = 0;
    if (length <= 0) {
        return 0;
    }
    const char *end = at + length;
    for (char *line; (line = sampler_line(&at, end)) != NULL;) {
        /* id parent major:minor root mount options [more ...] - type source options */
        char *rest = strstr(line, " - ");
        if (rest == NULL) {
            continue;
        }
        *rest = '\0';
        rest += 3;
        char *type = word(&rest);
        word(&rest);
        char *options = word(&rest), *root = NULL, *mount = NULL, *p = line;
        for (int i = 0; i < 5; i++) {
            char *field = word(&p);
            if (i == 3) {
                root = field;
            }
            if (i == 4) {
                mount = field;
            }
        }
        if (type == NULL || options == NULL || root == NULL || mount == NULL) {
            continue;
        }
        if (controller != NULL ? strcmp(type, "cgroup") != 0 || !lists(options, controller) : strcmp(type, "cgroup2") != 0) {
            continue;
        }
        unescape(root);
        unescape(mount);
        char path[2 * PATH_MAX];
        int below_sys = strncmp(mount, "/sys/", 5) == 0;
        int size = below_sys ? snprintf(path, sizeof path, "%s/%s", sampler->sys, mount + 5) : snprintf(path, sizeof path, "%s", mount);
        if (size <= 0 || size >= PATH_MAX || !is_folder(path)) {
            continue;
        }
        size_t shown = strcmp(root, "/") == 0 ? 0 : strlen(root);
        int inside = strncmp(own, root, shown) == 0 && (own[shown] == '/' || own[shown] == '\0') && strstr(own, "/..") == NULL;
        if (found == 0) {
            memcpy(folder, path, (size_t)size + 1);
            *top = (size_t)size;
            found = 1;
        }
        if (!inside) {
            continue;
        }
        int whole = snprintf(path + size, sizeof path - (size_t)size, "%s", strcmp(own + shown, "/") == 0 ? "" : own + shown) + size;
        if (whole >= PATH_MAX || !is_folder(path)) {
            continue;
        }
        memcpy(folder, path, (size_t)whole + 1);
        *top = (size_t)size;
        return 2;
    }
    return found;
}

static void close_part(struct sampler_cgroup *group) {
    for (int level = 0; level < group->levels; level++) {
        postrun_sampler_close(&group->limit[level]);
        postrun_sampler_close(&group->period[level]);
        postrun_sampler_close(&group->statistic[level]);
    }
    group->levels = 0;
}

static void open_part(struct sampler *sampler, enum cgroup_part part, int cgroup, int mounts) {
    struct sampler_cgroup *group = &sampler->cgroup[part];
    char own[PATH_MAX], folder[PATH_MAX];
    size_t top = 0;
    for (int version = 1; version <= 2; version++) {
        const char *controller = version == 1 ? controllers[part] : NULL;
        if (!own_path(sampler, cgroup, controller, own) || own_folder(sampler, mounts, controller, own, folder, &top) == 0) {
            continue;
        }
        int any = 0;
        for (;;) {
            int level = group->levels;
            group->limit[level] = postrun_sampler_open(folder, limit_files[version - 1][part]);
            group->statistic[level] = postrun_sampler_open(folder, statistic_files[version - 1][part]);
            if (period_files[version - 1][part] != NULL) {
                group->period[level] = postrun_sampler_open(folder, period_files[version - 1][part]);
            }
            any |= group->limit[level] >= 0 || (part == CGROUP_MEMORY && group->statistic[level] >= 0);
            group->levels++;
            char *slash = strrchr(folder + top, '/');
            if (slash == NULL || group->levels == SAMPLER_LEVELS) {
                break;
            }
            *slash = '\0';
        }
        if (any) {
            group->version = version;
            return;
        }
        close_part(group);
    }
    char why[160];
    snprintf(why, sizeof why, "no control group with the %s controller is visible to this process", controllers[part]);
    postrun_session_capability(keys[part], why);
}

void postrun_sampler_cgroup_open(struct sampler *sampler) {
    for (int part = 0; part < CGROUP_PARTS; part++) {
        sampler->cgroup[part].tightest = -1;
        for (int level = 0; level < SAMPLER_LEVELS; level++) {
            sampler->cgroup[part].limit[level] = sampler->cgroup[part].period[level] = sampler->cgroup[part].statistic[level] = -1;
        }
    }
    int cgroup = postrun_sampler_open(sampler->proc, "self/cgroup"), mounts = postrun_sampler_open(sampler->proc, "self/mountinfo");
    open_part(sampler, CGROUP_CPU, cgroup, mounts);
    open_part(sampler, CGROUP_MEMORY, cgroup, mounts);
    postrun_sampler_close(&cgroup);
    postrun_sampler_close(&mounts);
}

void postrun_sampler_cgroup_close(struct sampler *sampler) {
    for (int part = 0; part < CGROUP_PARTS; part++) {
        close_part(&sampler->cgroup[part]);
    }
}

/* ---------------------------------------------------------------- values */

/* The numbers in the first line. "max", "-1" and incomplete text are not numbers. */
static int numbers(struct sampler *sampler, int fd, uint64_t *value, int count) {
    char *at;
    int64_t length = fd < 0 ? 0 : postrun_sampler_read(sampler, fd, 1, &at);
    char *line = length > 0 ? sampler_line(&at, at + length) : NULL;
    const char *p = line;
    for (int i = 0; i < count; i++) {
        if (p == NULL || !sampler_number(&p, &value[i])) {
            return 0;
        }
    }
    return 1;
}

/* The limit of a level; 0: none. */
static double limit_of(struct sampler *sampler, enum cgroup_part part, int level) {
    struct sampler_cgroup *group = &sampler->cgroup[part];
    uint64_t value[2] = {0, 0};
    if (part == CGROUP_MEMORY) { /* version 1 writes the largest number of whole pages for no limit */
        return numbers(sampler, group->limit[level], value, 1) && value[0] < (uint64_t)1 << 62 ? (double)value[0] : 0;
    }
    int there = group->version == 2
                    ? numbers(sampler, group->limit[level], value, 2)
                    : numbers(sampler, group->limit[level], &value[0], 1) && numbers(sampler, group->period[level], &value[1], 1);
    return there && value[1] > 0 ? (double)value[0] / (double)value[1] : 0;
}

static void sample_limits(struct sampler *sampler, enum cgroup_part part, enum sampler_metric metric) {
    struct sampler_cgroup *group = &sampler->cgroup[part];
    int tightest = -1;
    for (int level = 0; level < group->levels; level++) {
        double limit = limit_of(sampler, part, level);
        if (limit > 0 && (tightest < 0 || limit < group->value)) {
            tightest = level;
            group->value = limit;
        }
    }
    if (tightest != group->tightest) {
        group->seen = 0;
    }
    group->tightest = tightest;
    if (tightest >= 0) {
        sampler->anything = 1;
        postrun_sampler_emit(sampler, metric, -1, group->value);
    }
}

static void sample_throttling(struct sampler *sampler) {
    struct sampler_cgroup *group = &sampler->cgroup[CGROUP_CPU];
    if (group->tightest < 0 || group->statistic[group->tightest] < 0) {
        return;
    }
    char *at;
    int64_t length = postrun_sampler_read(sampler, group->statistic[group->tightest], 1, &at);
    uint64_t periods = 0, throttled = 0;
    int there = 0;
    const char *end = length > 0 ? at + length : NULL;
    for (char *line; length > 0 && (line = sampler_line(&at, end)) != NULL;) {
        const char *p;
        if (strncmp(line, "nr_periods ", 11) == 0 && (p = line + 11, sampler_number(&p, &periods))) {
            there |= 1;
        } else if (strncmp(line, "nr_throttled ", 13) == 0 && (p = line + 13, sampler_number(&p, &throttled))) {
            there |= 2;
        }
    }
    if (there != 3) {
        return;
    }
    int64_t more = sampler_difference(periods, group->periods), of_them = sampler_difference(throttled, group->throttled);
    if (group->seen != 0 && group->seen + 1 == sampler->number && more > 0 && of_them >= 0) {
        postrun_sampler_emit(sampler, M_THROTTLED, -1, of_them < more ? 100 * (double)of_them / (double)more : 100);
    }
    group->periods = periods;
    group->throttled = throttled;
    group->seen = sampler->number;
}

static void sample_memory_use(struct sampler *sampler) {
    const struct sampler_cgroup *group = &sampler->cgroup[CGROUP_MEMORY];
    int level = group->tightest;
    for (int i = 0; level < 0 && i < group->levels; i++) {
        if (group->statistic[i] >= 0) {
            level = i;
        }
    }
    uint64_t used;
    if (level >= 0 && numbers(sampler, group->statistic[level], &used, 1)) {
        sampler->anything = 1;
        postrun_sampler_emit(sampler, M_CGROUP_MEMORY_USED, -1, (double)used);
    }
}

void postrun_sampler_cgroup_sample(struct sampler *sampler) {
    double since = (double)(sampler->ticks - sampler->limits_ticks);
    if (!sampler->limits_known || since < 0 || since >= LIMITS_EVERY_S * postrun_clock_rate()) {
        sampler->limits_known = 1;
        sampler->limits_ticks = sampler->ticks;
        sample_limits(sampler, CGROUP_CPU, M_CPU_QUOTA);
        sample_limits(sampler, CGROUP_MEMORY, M_CGROUP_MEMORY_LIMIT);
    }
    sample_throttling(sampler);
    sample_memory_use(sampler);
}
