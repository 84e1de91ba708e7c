/* stub_cupti.c - a libcupti for tests: plays records from a text, laid out as the vendor's headers of some version say.
 *
 * Compiled with those headers, -DKERNEL=CUpti_ActivityKernel9 and so on for the newest record types of the version, and calls.inc made from
 * its lists of callback ids. STUB_VERSION: what cuptiGetVersion says. STUB_ERRORS as in stub_cuda.c; "cuptiActivityEnable.10=35" is for one
 * kind. STUB_OTHER: the name of another subscriber. STUB_CLOCK: times are of a clock of its own until it is given another. Each line of a text is a record or a command:
 *
 *   kernel NAME START END DEVICE CONTEXT STREAM CORRELATION GX GY GZ BX BY BZ REGISTERS STATIC DYNAMIC NODE
 *   memcpy|memcpy2 KIND SOURCE DESTINATION BYTES START END DEVICE CONTEXT STREAM CORRELATION
 *   memset BYTES START END DEVICE CONTEXT STREAM CORRELATION
 *   sync TYPE START END CONTEXT STREAM CORRELATION
 *   driver|runtime NAME|#ID START END THREAD CORRELATION
 *   external KIND ID CORRELATION
 *   context CONTEXT DEVICE
 *   overhead | unknown KIND SIZE | buffer (this one is full) | dropped N | broken (the rest of this buffer cannot be read)
 *
 * Times are ns after the base that stub_play is given; "-" stands for 0; NAME "-" for NULL. */
#define _GNU_SOURCE
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALL(name)                     \
    do {                               \
        tell(name);                    \
        int error = failure(name);     \
        if (error) return (CUptiResult)error; \
    } while (0)

struct name {
    uint32_t id;
    const char *text;
};
static const struct name driver_calls[] = {
#define DRIVER(name, id) {id, #name},
#define RUNTIME(name, id)
#include "calls.inc"
#undef DRIVER
#undef RUNTIME
};
static const struct name runtime_calls[] = {
#define DRIVER(name, id)
#define RUNTIME(name, id) {id, #name},
#include "calls.inc"
};

static _Atomic CUpti_BuffersCallbackRequestFunc request;
static _Atomic CUpti_BuffersCallbackCompleteFunc complete;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint8_t enabled[64];
static _Atomic uint8_t calls_off[2][4096];
static CUpti_TimestampCallbackFunc _Atomic timestamp;
static size_t dropped;
static _Atomic CUpti_CallbackFunc subscribed;
static int subscriber;
static _Atomic int listens;
struct open_buffer { /* being filled */
    uint8_t *bytes;
    size_t size, used;
    struct open_buffer *next;
};
static struct open_buffer *pending;
struct text {
    struct text *next;
    char bytes[];
};
static struct text *texts;

static const char *kept(const char *bytes) {
    struct text *text = malloc(sizeof *text + strlen(bytes) + 1);
    strcpy(text->bytes, bytes);
    pthread_mutex_lock(&lock);
    text->next = texts;
    texts = text;
    pthread_mutex_unlock(&lock);
    return text->bytes;
}

static void *cuda(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *at = library ? dlsym(library, name) : NULL;
    if (!at) {
        fprintf(stderr, "libcupti was used before libcuda\n");
        abort();
    }
    dlclose(library);
    return at;
}
static void tell(const char *name) { ((void (*)(const char *))cuda("stub_log"))(name); }
static int failure(const char *name) { return ((int (*)(const char *))cuda("stub_error"))(name); }

static uint32_t version(void) {
    const char *told = getenv("STUB_VERSION");
    return told ? (uint32_t)strtoul(told, NULL, 10) : CUPTI_API_VERSION;
}

/* ---------------------------------------------------------------- buffers */

static void deliver(struct open_buffer *b) {
    complete(NULL, 0, b->bytes, b->size, b->used);
    free(b);
}

static struct open_buffer *fresh(void) {
    uint8_t *bytes = NULL;
    size_t size = 12345, records = 12345;
    request(&bytes, &size, &records);
    if (!bytes) {
        if (version() < 27) {
            fprintf(stderr, "no buffer: this version crashes\n");
            abort();
        }
        return NULL;
    }
    if (records != 0 || size < 4096 || (uintptr_t)bytes % 8) abort();
    struct open_buffer *b = calloc(1, sizeof *b);
    memset(bytes, 0xa5, size);
    *b = (struct open_buffer){bytes, size, 0, NULL};
    return b;
}

/* Each record has its length in front, so that no reader can know how to step but the library. */
static void put(struct open_buffer **b, const void *record, size_t size) {
    size_t whole = 8 + (size + 7) / 8 * 8;
    if (*b && (*b)->size - (*b)->used < whole) {
        deliver(*b);
        *b = NULL;
    }
    if (!*b) *b = fresh();
    if (!*b) {
        pthread_mutex_lock(&lock);
        dropped++;
        pthread_mutex_unlock(&lock);
        return;
    }
    memcpy((*b)->bytes + (*b)->used, &(uint64_t){whole}, 8);
    memcpy((*b)->bytes + (*b)->used + 8, record, size);
    (*b)->used += whole;
}

#define PUT(kind_, record) (enabled[kind_] ? put(&b, &(record), sizeof(record)) : (void)0)

static uint32_t find(const struct name *names, size_t count, const char *text) {
    if (*text == '#') return (uint32_t)strtoul(text + 1, NULL, 10);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i].text, text) == 0) return names[i].id;
    }
    fprintf(stderr, "no call %s\n", text);
    abort();
}

static uint64_t time_of(const char *text, uint64_t base) { return *text == '-' && !text[1] ? 0 : base + (uint64_t)strtoll(text, NULL, 10); }

static char *word(char **line) {
    char *w = strsep(line, " ");
    if (!w) abort();
    return w;
}
#define NUMBER() strtoll(word(&line), NULL, 10)
#define U32() (uint32_t) NUMBER()

/* Plays a text. What fills no buffer stays until a flush. 0: nothing listens. */
EXPORT int stub_play(const char *text, uint64_t base) {
    if (!complete) return 0;
    CUpti_TimestampCallbackFunc clock = timestamp;
    if (clock && llabs((long long)(clock() - base)) > 60000000000) abort(); /* not the clock of the one that plays */
    if (!clock && getenv("STUB_CLOCK")) base = 3600000000000u;
    char *copy = strdup(text), *rest = copy, *line;
    struct open_buffer *b = NULL;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) continue;
        const char *what = word(&line);
        if (strcmp(what, "kernel") == 0) {
            KERNEL k;
            memset(&k, 0xff, sizeof k);
            k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
            const char *name = word(&line);
            k.name = strcmp(name, "-") ? kept(name) : NULL; /* the library's; overwritten when it was read */
            k.start = time_of(word(&line), base), k.end = time_of(word(&line), base), k.deviceId = U32(), k.contextId = U32();
            k.streamId = U32(), k.correlationId = U32(), k.gridX = (int32_t)NUMBER(), k.gridY = (int32_t)NUMBER(), k.gridZ = (int32_t)NUMBER();
            k.blockX = (int32_t)NUMBER(), k.blockY = (int32_t)NUMBER(), k.blockZ = (int32_t)NUMBER();
            k.registersPerThread = (uint16_t)NUMBER(), k.staticSharedMemory = (int32_t)NUMBER(), k.dynamicSharedMemory = (int32_t)NUMBER();
            k.graphNodeId = (uint64_t)NUMBER();
            PUT(10, k);
        } else if (strcmp(what, "memcpy") == 0) {
            MEMCPY m;
            memset(&m, 0xff, sizeof m);
            m.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
            m.copyKind = (uint8_t)NUMBER(), m.srcKind = (uint8_t)NUMBER(), m.dstKind = (uint8_t)NUMBER(), m.bytes = (uint64_t)NUMBER();
            m.start = time_of(word(&line), base), m.end = time_of(word(&line), base), m.deviceId = U32(), m.contextId = U32();
            m.streamId = U32(), m.correlationId = U32();
            PUT(1, m);
        } else if (strcmp(what, "memcpy2") == 0) {
            PEER m;
            memset(&m, 0xff, sizeof m);
            m.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
            m.copyKind = (uint8_t)NUMBER(), m.srcKind = (uint8_t)NUMBER(), m.dstKind = (uint8_t)NUMBER(), m.bytes = (uint64_t)NUMBER();
            m.start = time_of(word(&line), base), m.end = time_of(word(&line), base), m.deviceId = U32(), m.contextId = U32();
            m.streamId = U32(), m.correlationId = U32();
            PUT(22, m);
        } else if (strcmp(what, "memset") == 0) {
            MEMSET m;
            memset(&m, 0xff, sizeof m);
            m.kind = CUPTI_ACTIVITY_KIND_MEMSET;
            m.bytes = (uint64_t)NUMBER(), m.start = time_of(word(&line), base), m.end = time_of(word(&line), base), m.deviceId = U32();
            m.contextId = U32(), m.streamId = U32(), m.correlationId = U32();
            PUT(2, m);
        } else if (strcmp(what, "sync") == 0) {
            SYNC s;
            memset(&s, 0xff, sizeof s);
            s.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
            s.type = (CUpti_ActivitySynchronizationType)NUMBER(), s.start = time_of(word(&line), base), s.end = time_of(word(&line), base);
            s.contextId = U32(), s.streamId = U32(), s.correlationId = U32();
            PUT(38, s);
        } else if (strcmp(what, "driver") == 0 || strcmp(what, "runtime") == 0) {
            int driver = what[0] == 'd';
            CUpti_ActivityAPI a;
            memset(&a, 0xff, sizeof a);
            a.kind = driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
            const char *name = word(&line);
            a.cbid = driver ? find(driver_calls, sizeof driver_calls / sizeof *driver_calls, name)
                            : find(runtime_calls, sizeof runtime_calls / sizeof *runtime_calls, name);
            a.start = time_of(word(&line), base), a.end = time_of(word(&line), base), a.threadId = U32(), a.correlationId = U32();
            if (a.cbid >= 4096 || !calls_off[!driver][a.cbid]) PUT(driver ? 4 : 5, a);
        } else if (strcmp(what, "external") == 0) {
            CUpti_ActivityExternalCorrelation e;
            memset(&e, 0xff, sizeof e);
            e.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
            e.externalKind = (CUpti_ExternalCorrelationKind)NUMBER(), e.externalId = strtoull(word(&line), NULL, 10), e.correlationId = U32();
            PUT(39, e);
        } else if (strcmp(what, "context") == 0) {
            CUpti_ActivityContext c;
            memset(&c, 0xff, sizeof c);
            c.kind = CUPTI_ACTIVITY_KIND_CONTEXT;
            c.contextId = U32(), c.deviceId = U32();
            PUT(9, c);
        } else if (strcmp(what, "overhead") == 0) {
            uint64_t o[5] = {17};
            PUT(17, o);
        } else if (strcmp(what, "unknown") == 0) {
            uint32_t kind = U32();
            size_t size = (size_t)NUMBER();
            uint8_t bytes[4096];
            memset(bytes, 0xff, sizeof bytes);
            memcpy(bytes, &kind, 4);
            put(&b, bytes, size);
        } else if (strcmp(what, "broken") == 0) {
            put(&b, &(uint32_t){0xdead}, 4);
        } else if (strcmp(what, "buffer") == 0) {
            if (b) deliver(b);
            b = NULL;
        } else if (strcmp(what, "dropped") == 0) {
            size_t records = (size_t)NUMBER();
            pthread_mutex_lock(&lock);
            dropped += records;
            pthread_mutex_unlock(&lock);
        } else {
            fprintf(stderr, "what is %s?\n", what);
            abort();
        }
    }
    free(copy);
    if (b) {
        pthread_mutex_lock(&lock);
        b->next = pending;
        pending = b;
        pthread_mutex_unlock(&lock);
    }
    return 1;
}

static void deliver_pending(void) {
    pthread_mutex_lock(&lock);
    struct open_buffer *list = pending;
    pending = NULL;
    pthread_mutex_unlock(&lock);
    while (list) {
        struct open_buffer *next = list->next;
        deliver(list);
        list = next;
    }
}

/* Takes buffers and never gives them back: so many. */
EXPORT int stub_hoard(int buffers) {
    int got = 0;
    for (; got < buffers; got++) {
        struct open_buffer *b = fresh();
        if (!b) break;
        pthread_mutex_lock(&lock);
        b->next = pending;
        pending = b;
        pthread_mutex_unlock(&lock);
    }
    return got;
}
EXPORT void stub_deliver(void) { deliver_pending(); }
/* What it holds never comes back. */
EXPORT void stub_forget(void) {
    pthread_mutex_lock(&lock);
    for (struct open_buffer *next; pending; pending = next) {
        next = pending->next;
        free(pending);
    }
    pthread_mutex_unlock(&lock);
}
/* A buffer that another tool gave comes back to whoever listens now. */
EXPORT int stub_foreign(void) {
    if (!complete) return 0;
    uint8_t *bytes = calloc(1, 4096);
    complete(NULL, 0, bytes, 4096, 64);
    free(bytes);
    return 1;
}
EXPORT int stub_enabled(int kind) { return enabled[kind]; }
EXPORT int stub_listened_to(void) { return complete != NULL; }
EXPORT int stub_attached(void) { return complete != NULL && enabled[17]; } /* the kind that is enabled last */

/* ---------------------------------------------------------------- the interface */

#pragma GCC visibility push(default)
CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *v) {
    int (*count)(int *) = (int (*)(int *))cuda("cuDeviceGetCount");
    int devices = 0;
    if (count(&devices) != 0 || devices < 1) {
        fprintf(stderr, "libcupti was asked where there is no device: some versions crash\n");
        abort();
    }
    CALL("cuptiGetVersion");
    *v = version();
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text) {
    *text = NULL;
    CALL("cuptiGetResultString");
    *text = result == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_OF_THE_STUB";
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r, CUpti_BuffersCallbackCompleteFunc c) {
    CALL("cuptiActivityRegisterCallbacks");
    request = r;
    complete = c;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
    char name[64];
    snprintf(name, sizeof name, "cuptiActivityEnable.%d", (int)kind);
    if (kind == 51) abort(); /* GRAPH_TRACE hides kernels */
    CALL("cuptiActivityEnable");
    int error = failure(name);
    if (error) return (CUptiResult)error;
    enabled[kind] = 1;
    for (int i = 0; (kind == 4 || kind == 5) && i < 4096; i++) calls_off[kind == 5][i] = 0;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
    CALL("cuptiActivityDisable");
    enabled[kind] = 0;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
    tell(flag ? "cuptiActivityFlushAll.forced" : "cuptiActivityFlushAll");
    int error = failure("cuptiActivityFlushAll");
    if (error) return (CUptiResult)error;
    deliver_pending();
    if (getenv("STUB_SLOW") && !flag) usleep(800000);
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    int error = failure("cuptiActivityGetNextRecord");
    if (error) return (CUptiResult)error;
    uint64_t whole = 0;
    uint8_t *at = *record ? (uint8_t *)*record - 8 : NULL;
    if (at) {
        CUpti_Activity *before = *record;
        if (before->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) { /* names do not outlive the reading */
            KERNEL k;
            memcpy(&k, before, sizeof k);
            if (k.name) memset((char *)(uintptr_t)k.name, '!', strlen(k.name));
        }
        memcpy(&whole, at, 8);
        at += whole;
    } else {
        at = buffer;
    }
    if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    uint32_t kind;
    memcpy(&kind, at + 8, 4);
    if (kind == 0xdead) return CUPTI_ERROR_INVALID_KIND;
    *record = (CUpti_Activity *)(void *)(at + 8);
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *records) {
    (void)context;
    (void)stream;
    int error = failure("cuptiActivityGetNumDroppedRecords");
    if (error) return (CUptiResult)error;
    pthread_mutex_lock(&lock);
    *records = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **text) {
    int error = failure("cuptiGetCallbackName");
    if (error) return (CUptiResult)error;
    const struct name *names = domain == 1 ? driver_calls : runtime_calls;
    size_t count = domain == 1 ? sizeof driver_calls / sizeof *names : sizeof runtime_calls / sizeof *names;
    *text = NULL;
    if (getenv("STUB_NO_NAMES")) return CUPTI_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        if (names[i].id == id) *text = names[i].text;
    }
    return *text ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult CUPTIAPI cuptiFinalize(void) {
    CALL("cuptiFinalize");
    for (int i = 0; i < 64; i++) enabled[i] = 0;
    subscribed = NULL;
    listens = 0;
    if (!getenv("STUB_LATE")) complete = NULL, request = NULL;
    timestamp = NULL;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
    CALL("cuptiActivityRegisterTimestampCallback");
    for (int i = 0; i < 64; i++) {
        if (enabled[i]) abort(); /* too late */
    }
    timestamp = function;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
    CALL("cuptiSetThreadIdType");
    return type == 1 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
#ifdef CALL_SWITCHES
CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
    int error = failure("cuptiActivityEnableDriverApi");
    if (error) return (CUptiResult)error;
    calls_off[0][id] = !enable;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
    int error = failure("cuptiActivityEnableRuntimeApi");
    if (error) return (CUptiResult)error;
    calls_off[1][id] = !enable;
    return CUPTI_SUCCESS;
}
#endif

static void at_call_exit(void) {
    CUpti_CallbackFunc callback = subscribed;
    if (callback && listens) {
        CUpti_CallbackData data;
        memset(&data, 0, sizeof data);
        data.callbackSite = CUPTI_API_ENTER;
        callback(NULL, CUPTI_CB_DOMAIN_DRIVER_API, 1, &data);
        data.callbackSite = CUPTI_API_EXIT;
        callback(NULL, CUPTI_CB_DOMAIN_DRIVER_API, 1, &data);
    }
}
CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *user) {
    (void)user;
    CALL("cuptiSubscribe");
    if (subscribed || getenv("STUB_OTHER")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    subscribed = callback;
    *handle = (CUpti_SubscriberHandle)(void *)&subscriber;
    return CUPTI_SUCCESS;
}
#ifdef SUBSCRIBE_2
CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *user, CUpti_SubscriberParams *p) {
    const char *other = getenv("STUB_OTHER");
    if (p->structSize < offsetof(CUpti_SubscriberParams, oldSubscriberSize) + sizeof(size_t) || strcmp(p->subscriberName, "postrun") != 0 ||
        p->oldSubscriberSize < CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN) {
        abort();
    }
    if (other) snprintf(p->oldSubscriberName, p->oldSubscriberSize, "%s", other);
    return cuptiSubscribe(handle, callback, user);
}
#endif
CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
    CALL("cuptiUnsubscribe");
    if ((void *)handle != (void *)&subscriber) abort();
    subscribed = NULL;
    listens = 0;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    CALL("cuptiEnableCallback");
    if ((void *)handle != (void *)&subscriber || domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0) abort();
    listens = (int)enable;
    *(void **)cuda("stub_cuda_hook") = (void *)at_call_exit;
    return CUPTI_SUCCESS;
}
#pragma GCC visibility pop
