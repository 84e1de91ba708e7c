/* cupti_loader.c - finds the libcupti to use, and loads its functions.
 *
 * The order is: the library that the process has loaded already, because two of them interfere; POSTRUN_CUPTI; a library that fits the
 * CUDA runtime of the process, or the driver: next to the runtime, next to PyTorch, as installed by pip, of the CUDA toolkit, of the
 * loader's path. A library of a newer CUDA than the driver's can crash the program. It is never loaded, and if the program has loaded it,
 * none of its functions is called. */
#define _GNU_SOURCE
#include "cupti_loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_driver.h"
#include "elf_soname.h"
#include "postrun.h"

#define FOLDERS 40
#define REASON 480
#define OLDEST_MAJOR 10 /* of CUDA; CUPTI_OLDEST belongs to it */

static struct cupti cupti;
static bool found;
static struct {
    char cupti[PATH_MAX], home[PATH_MAX], path[PATH_MAX];
} settings; /* POSTRUN_CUPTI, CUDA_HOME, CUDA_PATH as the session began */

static void keep(const char *variable, char *value) {
    const char *text = getenv(variable);
    snprintf(value, PATH_MAX, "%s", text ? text : "");
}

void postrun_cupti_places(void) {
    keep("POSTRUN_CUPTI", settings.cupti);
    keep("CUDA_HOME", settings.home);
    keep("CUDA_PATH", settings.path);
}

static void find(void *library, const char *name, void *function) {
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at);
}

/* 13 of "libcupti.so.13" or "libcupti.so.2025.1.1"; 0: unknown. */
static int major_of(const char *name) {
    const char *end = strstr(name, ".so.");
    int major = end ? atoi(end + 4) : 0;
    return major < 1000 ? major : 0;
}

/* The major version of CUDA that a library file is of, by its name or its SONAME: the newer one, if they differ. 0: not known. */
static int major_of_file(const char *path) {
    char name[256];
    const char *slash = strrchr(path, '/');
    int by_name = major_of(slash ? slash : path), by_soname = postrun_elf_soname(path, name, sizeof name) ? major_of(name) : 0;
    return by_name > by_soname ? by_name : by_soname;
}

/* Whether the driver supports this major version of CUDA; 0: not known. */
static bool fits_driver(int major, const char *path, char *why, size_t size) {
    int driver = postrun_cuda_version();
    if (major > 0 && major <= driver / 1000) {
        return true;
    }
    if (driver <= 0) {
        snprintf(why, size, "the driver does not say which CUDA it supports (cuDriverGetVersion), so no CUPTI is known to be safe");
    } else if (major > 0) {
        snprintf(why, size, "%.150s is of CUDA %d, and the driver supports no more than %d.%d: POSTRUN_CUPTI can name an older libcupti",
                 path, major, driver / 1000, driver % 1000 / 10);
    } else {
        snprintf(why, size, "%.150s: neither its name nor its SONAME contains its version of CUDA, so it may be newer than the driver",
                 path);
    }
    return false;
}

/* Its version of CUDA, as 13; 0: unknown. Since 13.0 the version of CUPTI contains it. */
static int cuda_of(const struct cupti *c) { return c->version >= 130000 ? (int)(c->version / 10000) : major_of(c->path); }

/* Advice to the user for an error. */
static const char *words(int error) {
    switch (error) {
    case 8: return "no memory for records: CUPTI needs some of the machine's and some MiB of the GPU's";
    case 14:
    case 23: return "another profiler or a debugger rules it out";
    case 15: return "CUPTI does not come together with the driver: it may be newer than what the driver supports";
    case 26: return "another tool uses what it needs of the GPU";
    case 27: return "neither this machine nor this GPU has it";
    case 33: return "the GPU is a virtual one (vGPU), of which the driver records nothing";
    case 35:
        return "this user may not profile: an administrator can allow it (NVreg_RestrictProfilingToAdminUsers=0 of the kernel module "
               "nvidia), a"
               " container needs --cap-add=SYS_ADMIN";
    case 40: return "the host does not let this virtual machine profile: its administrator can (enable_profiling=1 of the vGPU)";
    case 41: return "confidential computing is on: nothing can be recorded";
    case 42: return "GPUs of the series CMP cannot be recorded";
    case 43: return "the GPU is divided (MIG), of which this version records nothing: a newer CUPTI and driver may";
    case 44: return "GPUs joined by SLI cannot be recorded";
    case 45: return "under WSL this driver records nothing: update the driver of Windows, and allow all users its GPU performance counters";
    case 999:
        return "CUPTI cannot start: the driver may be too old for it, another profiler or a debugger may be attached, or this user may not"
               " profile";
    default: return "";
    }
}

void postrun_cupti_tell_error(const struct cupti *c, const char *function, int error, char *why, size_t size) {
    const char *text = NULL;
    if (!c->result_string || c->result_string(error, &text) != 0 || !text) {
        text = "unknown error";
    }
    const char *word = words(error);
    int length = snprintf(why, size, "%s: %s (%d)%s%s", function, text, error, *word ? ": " : "", word);
    int driver = postrun_cuda_version(), of = cuda_of(c);
    if (driver > 0 && of > driver / 1000 && length > 0 && (size_t)length < size) {
        snprintf(why + length, size - (size_t)length,
                 "; CUPTI is of CUDA %d, and the driver supports no more than %d.%d: POSTRUN_CUPTI can name an older libcupti", of,
                 driver / 1000, driver % 1000 / 10);
    }
}

/* CUPTI 13.2 calls itself until the stack overflows if the driver lacks what it needs; 13.3 reports an error. Its functions identify it,
 * because a request for the version is such a call. */
static bool overflows(void *library) {
    return dlsym(library, "cuptiActivityEnable_v2") && !dlsym(library, "cuptiActivityGetNextRecord_v2");
}

/* Whether a library that is loaded is one that can be used. */
static bool accept(void *library, const char *path, char *why, size_t size) {
    struct cupti c;
    memset(&c, 0, sizeof c);
    snprintf(c.path, sizeof c.path, "%s", path);
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0]) {
        snprintf(c.path, sizeof c.path, "%s", map->l_name);
    }
    find(library, "cuptiGetVersion", &c.get_version);
    find(library, "cuptiActivityRegisterCallbacks", &c.register_callbacks);
    find(library, "cuptiActivityEnable", &c.enable);
    find(library, "cuptiActivityDisable", &c.disable);
    find(library, "cuptiActivityFlushAll", &c.flush_all);
    find(library, "cuptiActivityGetNextRecord", &c.next_record);
    find(library, "cuptiActivityGetNumDroppedRecords", &c.dropped);
    find(library, "cuptiGetResultString", &c.result_string);
    find(library, "cuptiGetCallbackName", &c.callback_name);
    find(library, "cuptiFinalize", &c.finalize);
    find(library, "cuptiSetThreadIdType", &c.thread_id_type);
    find(library, "cuptiActivityRegisterTimestampCallback", &c.timestamp);
    find(library, "cuptiActivityEnableDriverApi", &c.driver_api);
    find(library, "cuptiActivityEnableRuntimeApi", &c.runtime_api);
    find(library, "cuptiSubscribe", &c.subscribe);
    find(library, "cuptiSubscribe_v2", &c.subscribe_2);
    find(library, "cuptiUnsubscribe", &c.unsubscribe);
    find(library, "cuptiEnableCallback", &c.enable_callback);
    find(library, "cuptiActivityRegisterCallbacks_v2", &c.register_callbacks_2);
    find(library, "cuptiActivityEnable_v2", &c.enable_2);
    find(library, "cuptiActivityDisable_v2", &c.disable_2);
    find(library, "cuptiActivityGetNextRecord_v2", &c.next_record_2);
    find(library, "cuptiActivityGetNumDroppedRecords_v2", &c.dropped_2);
    find(library, "cuptiActivityEnableDriverApi_v2", &c.driver_api_2);
    find(library, "cuptiActivityEnableRuntimeApi_v2", &c.runtime_api_2);
    find(library, "cuptiActivitySetAttribute_v2", &c.set_attribute_2);
    find(library, "cuptiActivityGetEnabledKinds", &c.enabled_kinds);
    if (!c.get_version || !c.register_callbacks || !c.enable || !c.disable || !c.flush_all || !c.next_record) {
        snprintf(why, size, "%.150s is no CUPTI", c.path);
        return false;
    }
    if (!fits_driver(major_of_file(c.path), c.path, why, size)) {
        return false;
    }
    int driver = postrun_cuda_version();
    if (overflows(library) && driver < 13020) {
        snprintf(
            why, size,
            "%.150s: CUPTI 13.2 can crash with a driver that supports no more than CUDA %d.%d: POSTRUN_CUPTI can name another libcupti",
            c.path, driver / 1000, driver % 1000 / 10);
        return false;
    }
    int error = c.get_version(&c.version);
    if (error) {
        char text[320];
        postrun_cupti_tell_error(&c, "cuptiGetVersion", error, text, sizeof text);
        snprintf(why, size, "%.100s: %s", c.path, text);
        return false;
    }
    if (c.version < CUPTI_OLDEST) {
        snprintf(why, size, "%.150s is too old: CUPTI version %u, %u or newer is needed", c.path, c.version, CUPTI_OLDEST);
        return false;
    }
    cupti = c;
    return true;
}

static bool try_path(const char *path, char *why, size_t size) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        snprintf(why, size, "%.200s", error ? error : path);
        return false;
    }
    return accept(library, path, why, size); /* a rejected library stays also: it was called, and may have started something */
}

/* ---------------------------------------------------------------- libraries in the process */

struct mapped {
    char cupti[PATH_MAX], runtime[PATH_MAX], torch[PATH_MAX];
};

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static int look(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct mapped *mapped = argument;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!slash) {
        return 0;
    }
    char *to = starts(slash, "/libcupti.so") || starts(slash, "/libcupti-")                                             ? mapped->cupti
               : starts(slash, "/libcudart")                                                                            ? mapped->runtime
               : starts(slash, "/libtorch_cuda.so") || starts(slash, "/libtorch_cpu.so") || starts(slash, "/libc10.so") ? mapped->torch
                                                                                                                        : NULL;
    if (to && !*to) {
        snprintf(to, PATH_MAX, "%s", info->dlpi_name);
    }
    return 0;
}

/* ---------------------------------------------------------------- folders to search */

struct places {
    char folders[FOLDERS][PATH_MAX];
    size_t count;
};

static __attribute__((format(printf, 2, 3))) void add(struct places *places, const char *format, ...) {
    if (places->count < FOLDERS) {
        va_list arguments;
        va_start(arguments, format);
        int length = vsnprintf(places->folders[places->count], PATH_MAX, format, arguments);
        va_end(arguments);
        places->count += length > 0 && length < PATH_MAX;
    }
}

/* The path without its last `levels` parts. */
static bool above(const char *path, int levels, char *folder) {
    snprintf(folder, PATH_MAX, "%s", path);
    for (; levels > 0; levels--) {
        char *slash = strrchr(folder, '/');
        if (!slash) {
            return false;
        }
        *slash = 0;
    }
    return true;
}

static void add_site_packages(struct places *places, const char *site) { /* as pip installs it */
    add(places, "%.3000s/nvidia/cuda_cupti/lib", site);
    add(places, "%.3000s/nvidia/cu13/lib", site);
    add(places, "%.3000s/nvidia/cu14/lib", site);
    add(places, "%.3000s/torch/lib", site);
}

static void add_toolkit(struct places *places, const char *home) {
    if (*home) {
        add(places, "%.3000s/extras/CUPTI/lib64", home);
        add(places, "%.3000s/lib64", home);
        add(places, "%.3000s/lib", home);
    }
}

static void collect(struct places *places, const struct mapped *mapped) {
    char folder[PATH_MAX];
    Dl_info own;
    if (mapped->runtime[0] && above(mapped->runtime, 1, folder)) {
        add(places, "%.3000s", folder);
        if (above(mapped->runtime, 4, folder)) { /* <site>/nvidia/cuda_runtime/lib/libcudart.so.12 */
            add_site_packages(places, folder);
        }
        if (above(mapped->runtime, 2, folder)) {
            add(places, "%.3000s/extras/CUPTI/lib64", folder);
        }
        if (above(mapped->runtime, 4, folder)) { /* <toolkit>/targets/x86_64-linux/lib/libcudart.so.12 */
            add(places, "%.3000s/extras/CUPTI/lib64", folder);
        }
    }
    if (mapped->torch[0] && above(mapped->torch, 3, folder)) { /* <site>/torch/lib/libtorch_cuda.so */
        add_site_packages(places, folder);
    }
    void *here;
    int (*function)(int) = postrun_gpu;
    memcpy(&here, &function, sizeof here);
    if (dladdr(here, &own) && own.dli_fname && above(own.dli_fname, 4, folder)) { /* <site>/postrun/native/lib/libpostrun.so */
        add_site_packages(places, folder);
    }
    add_toolkit(places, settings.home);
    add_toolkit(places, settings.path);
    add_toolkit(places, "/usr/local/cuda");
}

/* `major`: of CUDA; 0: any that the driver supports. */
static bool try_folder(const char *folder, int major, char *why, size_t size) {
    DIR *directory = opendir(folder);
    if (!directory) {
        return false;
    }
    char best[2 * PATH_MAX] = "", path[2 * PATH_MAX], last[REASON];
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!starts(entry->d_name, "libcupti.so")) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int is = major_of_file(path);
        bool fits = fits_driver(is, path, last, sizeof last);
        if (!fits && !major) {
            snprintf(why, size, "%s", last);
        }
        if (fits && (major == 0 || is == major) && strcmp(path, best) > 0) {
            memcpy(best, path, sizeof best);
        }
    }
    closedir(directory);
    return best[0] && try_path(best, why, size);
}

/* By the loader's path, where only the name contains its version of CUDA. */
static bool try_name(int major, char *why, size_t size) {
    char name[64];
    static const char *const eleven[] = {"libcupti.so.11.8", "libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5",
                                         "libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2", "libcupti.so.11.1"};
    if (major == 0) {
        for (int newest = postrun_cuda_version() / 1000; newest >= OLDEST_MAJOR; newest--) {
            if (try_name(newest, why, size)) {
                return true;
            }
        }
        return false;
    }
    snprintf(name, sizeof name, "libcupti.so.%d", major);
    if (major != 11) {
        return try_path(name, why, size);
    }
    for (size_t i = 0; i < sizeof eleven / sizeof *eleven; i++) {
        if (try_path(eleven[i], why, size)) {
            return true;
        }
    }
    return false;
}

static bool search(char *why, size_t size) {
    struct mapped *mapped = calloc(1, sizeof *mapped);
    struct places *places = calloc(1, sizeof *places);
    bool done = false;
    if (!mapped || !places) {
        snprintf(why, size, "no memory");
        goto end;
    }
    dl_iterate_phdr(look, mapped);
    if (mapped->cupti[0]) {
        void *library = dlopen(mapped->cupti, RTLD_NOW | RTLD_NOLOAD);
        if (library) {
            done = accept(library, mapped->cupti, why, size);
            goto end; /* a second one would get into its way */
        }
    }
    if (settings.cupti[0]) {
        bool missing = strchr(settings.cupti, '/') && access(settings.cupti, R_OK) != 0; /* the loader has words for that */
        done = (missing || fits_driver(major_of_file(settings.cupti), settings.cupti, why, size)) && try_path(settings.cupti, why, size);
        goto end;
    }
    collect(places, mapped);
    int runtime = major_of(mapped->runtime), driver = postrun_cuda_version() / 1000;
    int majors[] = {runtime, driver, 0};
    char last[REASON] = "";
    for (size_t m = runtime && runtime <= driver ? 0 : 1; m < sizeof majors / sizeof *majors && !done; m++) {
        if (m + 1 < sizeof majors / sizeof *majors && majors[m] == 0) {
            continue;
        }
        for (size_t i = 0; i < places->count && !done; i++) {
            done = try_folder(places->folders[i], majors[m], last, sizeof last);
        }
        done = done || try_name(majors[m], why, size);
    }
    if (!done && last[0]) { /* a library that was there explains more than one that was not */
        snprintf(why, size, "%s", last);
    }
end:
    free(mapped);
    free(places);
    return done;
}

const struct cupti *postrun_cupti(char *why, size_t size) {
    if (!found) {
        char reason[REASON] = "";
        found = search(reason, sizeof reason);
        if (!found) {
            snprintf(why, size, "no CUPTI: %s", reason);
        }
    }
    return found ? &cupti : NULL;
}
