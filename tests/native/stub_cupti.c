/* stub_cupti.c - a libcupti for tests: plays records from a text, in the layout of the vendor's headers of a version.
 *
 * Compiled with those headers, -DKERNEL=CUpti_ActivityKernel9 and so on for the newest record types of the version, and calls.inc made from
 * its lists of callback ids.
 *
 * Environment:
 *   STUB_VERSION         the result of cuptiGetVersion; it also selects the defects below
 *   STUB_ERRORS          as in stub_cuda.c; "cuptiActivityEnable.10=35" is for one kind
 *   STUB_LOG             as in stub_cuda.c
 *   STUB_OTHER           the name of another exclusive subscriber that is there from the start
 *   STUB_CLOCK           times are of a clock of its own until CUPTI is given another one
 *   STUB_SLOW            a flush that is not forced takes 0.8 s
 *   STUB_FOREIGN_THREAD  buffers are delivered on a thread of the library
 *   STUB_LATE            buffer callbacks survive cuptiFinalize
 *   STUB_NO_NAMES        cuptiGetCallbackName knows no names
 *
 * Defects and changes of the real library, by version:
 *   24 to 130099         each timestamp callback that is registered breaks kernels: after the Nth registration the next N have times 0
 *   before 27            a buffer request that is declined aborts
 *   130000               cuptiActivityDisable of kernels and cuptiActivityFlushAll abort (they hang or crash)
 *   130000 and newer     one buffer for each thread, unless the attribute PER_THREAD_ACTIVITY_BUFFER is 0
 *   before 130101        kernels of graphs have the correlation of the next launch in every session but the first
 *   130300 and newer     several subscribers, if all allow it and the driver supports CUDA 13.3; else CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
 *   all                  a subscription that another client's cuptiFinalize ended may not be used, nor anything be flushed: both abort
 *
 * A second client of the same process, for programs that look these up (0: success, else the error of CUPTI):
 *   stub_other_subscribe(NAME, MULTIPLE)  subscribes; 39 while another one has subscribed
 *   stub_other_profile()                  replaces the buffer callbacks and enables kernels, without asking whether anybody records
 *   stub_other_enable(KIND)               enables a kind, and leaves the buffer callbacks as they are
 *   stub_other_thread_ids()               the kind of thread ids that it gets
 *   stub_other_kernels()                  the number of kernels that it received
 *   stub_other_unsubscribe(), stub_other_finalize()  ends its subscription; ends CUPTI in the process
 *
 * Each line of a text is a record or a command:
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
#include <stdatomic.h>
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
        if (error) {                   \
            return (CUptiResult)error; \
        }                              \
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

struct open_buffer { /* being filled */
    uint8_t *bytes;
    size_t size, used;
    struct client *client;
    struct open_buffer *next;
};
struct filler { /* of a thread, or of all */
    pthread_mutex_t lock;
    pthread_t thread;
    struct open_buffer *open;
    struct filler *next;
};
struct client { /* one that receives records: all that use the first interface, or one subscriber of the second */
    _Atomic CUpti_BuffersCallbackRequestFunc request;
    _Atomic CUpti_BuffersCallbackCompleteFunc complete;
    void *_Atomic request_2, *_Atomic complete_2;
    _Atomic uint8_t enabled[64];
    _Atomic uint8_t calls_off[2][4096];
    size_t dropped;
    struct filler shared, *threads;
    struct client *_Atomic next;
};
struct subscriber { /* never freed, so that one that has ended is known */
    CUpti_CallbackFunc callback;
    void *user;
    _Atomic uint32_t listens; /* to the call of this id */
    int multiple;
    _Atomic int ended;
    char name[64];
    struct client *client; /* of the second interface */
    struct subscriber *next;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct client first = {.shared.lock = PTHREAD_MUTEX_INITIALIZER, .next = NULL};
static struct subscriber *_Atomic subscribers;
static CUpti_TimestampCallbackFunc _Atomic timestamp;
static _Atomic int registrations, broken, sessions, shared_buffers, torn; /* torn: by another client's cuptiFinalize */
static _Atomic int other_kernels, thread_ids;
static struct subscriber *other_subscriber;
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

#if CUPTI_API_VERSION >= 130300
typedef CUpti_BuffersCallbackRequestFunc_v2 request_function_2;
typedef CUpti_BuffersCallbackCompleteFunc_v2 complete_function_2;
#endif

static struct client *listening(struct client *client) { /* the first one from here on that receives records */
    while (client && !client->complete && !client->complete_2) {
        client = client->next;
    }
    return client;
}

static void *complete_now(void *argument) {
    struct open_buffer *b = argument;
    CUpti_BuffersCallbackCompleteFunc complete = b->client->complete;
    if (complete) {
        complete(NULL, 0, b->bytes, b->size, b->used);
    }
#if CUPTI_API_VERSION >= 130300
    complete_function_2 complete_2 = (complete_function_2)b->client->complete_2;
    CUpti_BufferCallbackCompleteInfo information = {.structSize = sizeof information};
    if (complete_2) {
        complete_2(b->bytes, b->size, b->used, &information);
    }
#endif
    free(b);
    return NULL;
}

static void deliver(struct open_buffer *b) {
    pthread_t thread;
    if (!getenv("STUB_FOREIGN_THREAD")) {
        complete_now(b);
    } else if (pthread_create(&thread, NULL, complete_now, b) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
}

static struct open_buffer *fresh(struct client *client) {
    uint8_t *bytes = NULL;
    size_t size = 12345, records = 12345;
    CUpti_BuffersCallbackRequestFunc request = client->request;
    if (request) {
        request(&bytes, &size, &records);
    }
#if CUPTI_API_VERSION >= 130300
    request_function_2 request_2 = (request_function_2)client->request_2;
    CUpti_BufferCallbackRequestInfo information = {.structSize = sizeof information};
    if (request_2) {
        request_2(&bytes, &size, &records, &information);
    }
#endif
    if (!bytes) {
        if (version() < 27) {
            fprintf(stderr, "no buffer: this version crashes\n");
            abort();
        }
        return NULL;
    }
    if (records != 0 || size < 4096 || (uintptr_t)bytes % 8) {
        abort();
    }
    struct open_buffer *b = calloc(1, sizeof *b);
    memset(bytes, 0xa5, size);
    *b = (struct open_buffer){bytes, size, 0, client, NULL};
    return b;
}

static struct filler *filler_of(struct client *client) { /* which buffer this thread fills */
    if (version() < 130000 || shared_buffers) {
        return &client->shared;
    }
    pthread_mutex_lock(&lock);
    struct filler *filler = client->threads;
    while (filler && !pthread_equal(filler->thread, pthread_self())) {
        filler = filler->next;
    }
    if (!filler) {
        filler = calloc(1, sizeof *filler);
        pthread_mutex_init(&filler->lock, NULL);
        filler->thread = pthread_self();
        filler->next = client->threads;
        client->threads = filler;
    }
    pthread_mutex_unlock(&lock);
    return filler;
}

/* Each record has its length in front, so that no reader can know how to step but the library. */
static void put(struct client *client, const void *record, size_t size) {
    size_t whole = 8 + (size + 7) / 8 * 8;
    struct filler *filler = filler_of(client);
    pthread_mutex_lock(&filler->lock);
    if (filler->open && filler->open->size - filler->open->used < whole) {
        deliver(filler->open);
        filler->open = NULL;
    }
    if (!filler->open) {
        filler->open = fresh(client);
    }
    struct open_buffer *b = filler->open;
    if (b) {
        memcpy(b->bytes + b->used, &(uint64_t){whole}, 8);
        memcpy(b->bytes + b->used + 8, record, size);
        b->used += whole;
    }
    pthread_mutex_unlock(&filler->lock);
    if (!b) {
        pthread_mutex_lock(&lock);
        client->dropped++;
        pthread_mutex_unlock(&lock);
    }
}

static void put_all(int kind, const void *record, size_t size) { /* kind 0: whatever is enabled */
    for (struct client *client = &first; (client = listening(client)); client = client->next) {
        if (kind == 0 || client->enabled[kind]) {
            put(client, record, size);
        }
    }
}

static void put_call(int domain, uint32_t id, const void *record, size_t size) {
    for (struct client *client = &first; (client = listening(client)); client = client->next) {
        if (client->enabled[domain == 0 ? 4 : 5] && (id >= 4096 || !client->calls_off[domain][id])) {
            put(client, record, size);
        }
    }
}

static void deliver_open(struct filler *filler) {
    pthread_mutex_lock(&filler->lock);
    struct open_buffer *b = filler->open;
    filler->open = NULL;
    if (b) {
        deliver(b);
    }
    pthread_mutex_unlock(&filler->lock);
}

static int any_enabled(int kind) { /* kind 0: any of them */
    for (struct client *client = &first; (client = listening(client)); client = client->next) {
        for (int i = kind; i < (kind ? kind + 1 : 64); i++) {
            if (client->enabled[i]) {
                return 1;
            }
        }
    }
    return 0;
}

/* Kernels of a window's head that this version gives no times. */
static int loses_times(void) {
    int left = broken;
    while (left > 0 && !atomic_compare_exchange_weak(&broken, &left, left - 1)) {
    }
    return left > 0;
}

#define PUT(kind_, record) put_all(kind_, &(record), sizeof(record))

static uint32_t find(const struct name *names, size_t count, const char *text) {
    if (*text == '#') {
        return (uint32_t)strtoul(text + 1, NULL, 10);
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i].text, text) == 0) {
            return names[i].id;
        }
    }
    fprintf(stderr, "no call %s\n", text);
    abort();
}

static uint64_t time_of(const char *text, uint64_t base) { return *text == '-' && !text[1] ? 0 : base + (uint64_t)strtoll(text, NULL, 10); }

static char *word(char **line) {
    char *w = strsep(line, " ");
    if (!w) {
        abort();
    }
    return w;
}
#define NUMBER() strtoll(word(&line), NULL, 10)
#define U32() (uint32_t)NUMBER()

/* Plays a text. Records that fill no buffer stay until a flush. 0: nothing is recorded. */
EXPORT int stub_play(const char *text, uint64_t base) {
    if (!any_enabled(0)) {
        return 0;
    }
    CUpti_TimestampCallbackFunc clock = timestamp;
    if (clock && llabs((long long)(clock() - base)) > 60000000000) {
        abort(); /* not the clock of the one that plays */
    }
    if (!clock && getenv("STUB_CLOCK")) {
        base = 3600000000000u;
    }
    char *copy = strdup(text), *rest = copy, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) {
            continue;
        }
        const char *what = word(&line);
        if (strcmp(what, "kernel") == 0) {
            KERNEL k;
            memset(&k, 0xff, sizeof k);
            k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
            const char *name = word(&line);
            k.name = strcmp(name, "-") ? kept(name) : NULL; /* the library's; overwritten when it was read */
            k.start = time_of(word(&line), base), k.end = time_of(word(&line), base), k.deviceId = U32(), k.contextId = U32();
            k.streamId = U32(), k.correlationId = U32(), k.gridX = (int32_t)NUMBER(), k.gridY = (int32_t)NUMBER(),
            k.gridZ = (int32_t)NUMBER();
            k.blockX = (int32_t)NUMBER(), k.blockY = (int32_t)NUMBER(), k.blockZ = (int32_t)NUMBER();
            k.registersPerThread = (uint16_t)NUMBER(), k.staticSharedMemory = (int32_t)NUMBER(), k.dynamicSharedMemory = (int32_t)NUMBER();
            k.graphNodeId = (uint64_t)NUMBER();
            if (any_enabled(10) && loses_times()) {
                k.start = k.end = 0;
            }
            if (version() < 130101 && sessions > 1 && k.graphNodeId) {
                k.correlationId++;
            }
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
            put_call(!driver, a.cbid, &a, sizeof a);
        } else if (strcmp(what, "external") == 0) {
            CUpti_ActivityExternalCorrelation e;
            memset(&e, 0xff, sizeof e);
            e.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
            e.externalKind = (CUpti_ExternalCorrelationKind)NUMBER(), e.externalId = strtoull(word(&line), NULL, 10),
            e.correlationId = U32();
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
            put_all(0, bytes, size);
        } else if (strcmp(what, "broken") == 0) {
            put_all(0, &(uint32_t){0xdead}, 4);
        } else if (strcmp(what, "buffer") == 0) {
            for (struct client *client = &first; (client = listening(client)); client = client->next) {
                deliver_open(filler_of(client));
            }
        } else if (strcmp(what, "dropped") == 0) {
            size_t records = (size_t)NUMBER();
            pthread_mutex_lock(&lock);
            for (struct client *client = &first; (client = listening(client)); client = client->next) {
                client->dropped += records;
            }
            pthread_mutex_unlock(&lock);
        } else {
            fprintf(stderr, "what is %s?\n", what);
            abort();
        }
    }
    free(copy);
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
    for (struct client *client = &first; (client = listening(client)); client = client->next) {
        deliver_open(&client->shared);
        pthread_mutex_lock(&lock);
        struct filler *filler = client->threads;
        pthread_mutex_unlock(&lock);
        for (; filler; filler = filler->next) {
            deliver_open(filler);
        }
    }
}

static void forget(struct filler *filler) {
    pthread_mutex_lock(&filler->lock);
    free(filler->open);
    filler->open = NULL;
    pthread_mutex_unlock(&filler->lock);
}

static void reset(struct client *client) { /* what it holds never comes back */
    for (int i = 0; i < 64; i++) {
        client->enabled[i] = 0;
    }
    forget(&client->shared);
    for (struct filler *filler = client->threads; filler; filler = filler->next) {
        forget(filler);
    }
}

/* Takes buffers and never gives them back: this many. */
EXPORT int stub_hoard(int buffers) {
    struct client *client = listening(&first);
    int got = 0;
    for (; client && got < buffers; got++) {
        struct open_buffer *b = fresh(client);
        if (!b) {
            break;
        }
        pthread_mutex_lock(&lock);
        b->next = pending;
        pending = b;
        pthread_mutex_unlock(&lock);
    }
    return got;
}
EXPORT void stub_deliver(void) { deliver_pending(); }
/* Its records are never delivered. */
EXPORT void stub_forget(void) {
    pthread_mutex_lock(&lock);
    for (struct open_buffer *next; pending; pending = next) {
        next = pending->next;
        free(pending);
    }
    pthread_mutex_unlock(&lock);
}
/* A buffer that another tool gave comes back to the present listener. */
EXPORT int stub_foreign(void) {
    struct client *client = listening(&first);
    if (!client) {
        return 0;
    }
    struct open_buffer *b = calloc(1, sizeof *b);
    uint8_t *bytes = calloc(1, 4096);
    *b = (struct open_buffer){bytes, 4096, 64, client, NULL};
    deliver(b);
    free(bytes);
    return 1;
}
EXPORT int stub_enabled(int kind) { return any_enabled(kind); }
EXPORT int stub_listened_to(void) { return listening(&first) != NULL; }
EXPORT int stub_attached(void) { return any_enabled(17); } /* the kind that is enabled last */
EXPORT int stub_subscribed(void) {
    int count = 0;
    for (struct subscriber *s = subscribers; s; s = s->next) {
        count += !s->ended;
    }
    return count;
}

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
static void not_torn(const char *name) {
    if (torn) {
        fprintf(stderr, "%s after another client's cuptiFinalize: this crashes\n", name);
        abort();
    }
}
static void first_interface(const char *name) { /* not next to the second one */
    not_torn(name);
    for (struct subscriber *s = subscribers; s; s = s->next) {
        if (!s->ended && s->multiple) {
            fprintf(stderr, "%s while several subscribers are allowed\n", name);
            abort();
        }
    }
}
static struct subscriber *current(CUpti_SubscriberHandle handle, const char *name) {
    not_torn(name);
    for (struct subscriber *s = subscribers; s; s = s->next) {
        if ((void *)s == (void *)handle && !s->ended) {
            return s;
        }
    }
    fprintf(stderr, "%s: this subscription has ended\n", name);
    abort();
}

static CUptiResult enable(struct client *client, CUpti_ActivityKind kind) {
    char name[64];
    snprintf(name, sizeof name, "cuptiActivityEnable.%d", (int)kind);
    if (kind == 51) {
        abort(); /* GRAPH_TRACE hides kernels */
    }
    CALL("cuptiActivityEnable");
    int error = failure(name);
    if (error) {
        return (CUptiResult)error;
    }
    sessions += kind == 10 && !client->enabled[10];
    client->enabled[kind] = 1;
    for (int i = 0; (kind == 4 || kind == 5) && i < 4096; i++) {
        client->calls_off[kind == 5][i] = 0;
    }
    return CUPTI_SUCCESS;
}
static CUptiResult disable(struct client *client, CUpti_ActivityKind kind) {
    CALL("cuptiActivityDisable");
    if (version() == 130000 && kind == 10) {
        abort(); /* it hangs */
    }
    client->enabled[kind] = 0;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r, CUpti_BuffersCallbackCompleteFunc c) {
    first_interface("cuptiActivityRegisterCallbacks");
    CALL("cuptiActivityRegisterCallbacks");
    first.request = r;
    first.complete = c;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
    first_interface("cuptiActivityEnable");
    return enable(&first, kind);
}
CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
    first_interface("cuptiActivityDisable");
    return disable(&first, kind);
}
CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
    not_torn("cuptiActivityFlushAll");
    tell(flag ? "cuptiActivityFlushAll.forced" : "cuptiActivityFlushAll");
    if (version() == 130000) {
        abort(); /* it crashes */
    }
    int error = failure("cuptiActivityFlushAll");
    if (error) {
        return (CUptiResult)error;
    }
    deliver_pending();
    if (getenv("STUB_SLOW") && !flag) {
        usleep(800000);
    }
    return CUPTI_SUCCESS;
}
static CUptiResult next_record(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    int error = failure("cuptiActivityGetNextRecord");
    if (error) {
        return (CUptiResult)error;
    }
    uint64_t whole = 0;
    uint8_t *at = *record ? (uint8_t *)*record - 8 : NULL;
    if (at) {
        CUpti_Activity *before = *record;
        if (before->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) { /* names do not outlive the reading */
            KERNEL k;
            memcpy(&k, before, sizeof k);
            if (k.name) {
                memset((char *)(uintptr_t)k.name, '!', strlen(k.name));
            }
        }
        memcpy(&whole, at, 8);
        at += whole;
    } else {
        at = buffer;
    }
    if (at >= buffer + valid) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    uint32_t kind;
    memcpy(&kind, at + 8, 4);
    if (kind == 0xdead) {
        return CUPTI_ERROR_INVALID_KIND;
    }
    *record = (CUpti_Activity *)(void *)(at + 8);
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    first_interface("cuptiActivityGetNextRecord");
    return next_record(buffer, valid, record);
}
static CUptiResult dropped_records(struct client *client, size_t *records) {
    int error = failure("cuptiActivityGetNumDroppedRecords");
    if (error) {
        return (CUptiResult)error;
    }
    pthread_mutex_lock(&lock);
    *records = client->dropped;
    client->dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *records) {
    (void)context;
    (void)stream;
    first_interface("cuptiActivityGetNumDroppedRecords");
    return dropped_records(&first, records);
}
static CUptiResult set_attribute(struct client *client, uint32_t attribute, const size_t *size, const void *value) {
    CALL("cuptiActivitySetAttribute");
    for (int i = 0; i < 64; i++) {
        if (client->enabled[i]) {
            abort(); /* too late */
        }
    }
    if (attribute == 9) {
        if (*size != 1) {
            return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
        }
        shared_buffers = *(const uint8_t *)value == 0;
    } else if (attribute == 22) {
        memcpy((void *)&timestamp, value, sizeof timestamp);
        registrations++;
    } else if (attribute != 21 || *(const uint32_t *)value != 1) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
    first_interface("cuptiActivitySetAttribute");
    return set_attribute(&first, (uint32_t)attribute, size, value);
}
CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **text) {
    int error = failure("cuptiGetCallbackName");
    if (error) {
        return (CUptiResult)error;
    }
    const struct name *names = domain == 1 ? driver_calls : runtime_calls;
    size_t count = domain == 1 ? sizeof driver_calls / sizeof *names : sizeof runtime_calls / sizeof *names;
    *text = NULL;
    if (getenv("STUB_NO_NAMES")) {
        return CUPTI_SUCCESS;
    }
    for (size_t i = 0; i < count; i++) {
        if (names[i].id == id) {
            *text = names[i].text;
        }
    }
    return *text ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
static void end_all(void) {
    for (struct client *client = &first; client; client = client->next) {
        reset(client);
        if (!getenv("STUB_LATE")) {
            client->complete = NULL, client->request = NULL, client->complete_2 = NULL, client->request_2 = NULL;
        }
    }
    for (struct subscriber *s = subscribers; s; s = s->next) {
        s->ended = 1, s->listens = 0;
    }
    timestamp = NULL;
    shared_buffers = thread_ids = 0;
}
CUptiResult CUPTIAPI cuptiFinalize(void) {
    not_torn("cuptiFinalize");
    CALL("cuptiFinalize");
    if (stub_subscribed() && !failure("cuptiUnsubscribe")) {
        fprintf(stderr, "cuptiFinalize with a subscription\n");
        abort();
    }
    end_all();
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
    first_interface("cuptiActivityRegisterTimestampCallback");
    CALL("cuptiActivityRegisterTimestampCallback");
    if (any_enabled(0)) {
        abort(); /* too late */
    }
    timestamp = function;
    registrations++;
    if (version() >= 24 && version() < 130100) {
        broken = registrations;
    }
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
    CALL("cuptiSetThreadIdType");
    if (any_enabled(0)) {
        abort(); /* in the middle */
    }
    thread_ids = (int)type;
    return type == 0 || type == 1 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
#ifdef CALL_SWITCHES
CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
    int error = failure("cuptiActivityEnableDriverApi");
    if (error) {
        return (CUptiResult)error;
    }
    first.calls_off[0][id] = !enable;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
    int error = failure("cuptiActivityEnableRuntimeApi");
    if (error) {
        return (CUptiResult)error;
    }
    first.calls_off[1][id] = !enable;
    return CUPTI_SUCCESS;
}
#endif

static void at_call_exit(void) {
    for (struct subscriber *s = subscribers; s; s = s->next) {
        uint32_t id = s->listens;
        if (s->ended || !id) {
            continue;
        }
        CUpti_CallbackData data;
        memset(&data, 0, sizeof data);
        data.callbackSite = CUPTI_API_ENTER;
        s->callback(s->user, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
        data.callbackSite = CUPTI_API_EXIT;
        if (!s->ended) {
            s->callback(s->user, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
        }
    }
}

/* The first obstacle; its name. */
static const char *in_the_way(int multiple) {
    int (*driver_version)(int *) = (int (*)(int *))cuda("cuDriverGetVersion");
    int driver = 0;
    if (getenv("STUB_OTHER")) {
        return getenv("STUB_OTHER");
    }
    if (multiple && (version() < 130300 || driver_version(&driver) != 0 || driver < 13030)) {
        return "";
    }
    for (struct subscriber *s = subscribers; s; s = s->next) {
        if (!s->ended && !(multiple && s->multiple)) {
            return s->name;
        }
    }
    return NULL;
}
static struct subscriber *add_subscriber(const char *name, CUpti_CallbackFunc callback, void *user, int multiple) {
    struct subscriber *s = calloc(1, sizeof *s);
    s->callback = callback;
    s->user = user;
    s->multiple = multiple;
    snprintf(s->name, sizeof s->name, "CUPTI for %.50s", name);
    pthread_mutex_lock(&lock);
    if (multiple) { /* one that has ended gives its client */
        for (struct subscriber *old = subscribers; old && !s->client; old = old->next) {
            if (old->ended && old->client) {
                s->client = old->client, old->client = NULL;
            }
        }
        if (!s->client) {
            s->client = calloc(1, sizeof *s->client);
            pthread_mutex_init(&s->client->shared.lock, NULL);
            s->client->next = first.next;
            first.next = s->client;
        }
    }
    s->next = subscribers;
    subscribers = s;
    pthread_mutex_unlock(&lock);
    torn = 0;
    return s;
}
CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *user) {
    CALL("cuptiSubscribe");
    if (in_the_way(0)) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    *handle = (CUpti_SubscriberHandle)(void *)add_subscriber("", callback, user, 0);
    return CUPTI_SUCCESS;
}
#ifdef SUBSCRIBE_2
CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *user, CUpti_SubscriberParams *p) {
    if (p->structSize < offsetof(CUpti_SubscriberParams, oldSubscriberSize) + sizeof(size_t) || strcmp(p->subscriberName, "postrun") != 0 ||
        p->oldSubscriberSize < CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN) {
        abort();
    }
    CALL("cuptiSubscribe");
    int multiple = 0;
#if CUPTI_API_VERSION >= 130200
    multiple = p->structSize >= offsetof(CUpti_SubscriberParams, allowMultipleSubscribers) + 1 && p->allowMultipleSubscribers;
#endif
    const char *other = in_the_way(multiple);
    if (other) {
        snprintf(p->oldSubscriberName, p->oldSubscriberSize, "%s", other);
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    *handle = (CUpti_SubscriberHandle)(void *)add_subscriber(p->subscriberName, callback, user, multiple);
    return CUPTI_SUCCESS;
}
#endif
CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
    CALL("cuptiUnsubscribe");
    struct subscriber *s = current(handle, "cuptiUnsubscribe");
    s->ended = 1;
    s->listens = 0;
    if (s->client) {
        reset(s->client);
        s->client->complete_2 = s->client->request_2 = NULL;
    }
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    CALL("cuptiEnableCallback");
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0) {
        abort();
    }
    current(handle, "cuptiEnableCallback")->listens = enable ? id : 0;
    *(void **)cuda("stub_cuda_hook") = (void *)at_call_exit;
    return CUPTI_SUCCESS;
}
#if CUPTI_API_VERSION >= 130300
static struct client *client_of(CUpti_SubscriberHandle handle, const char *name) {
    struct subscriber *s = current(handle, name);
    if (!s->client) {
        abort(); /* an exclusive one uses the first interface */
    }
    return s->client;
}
CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks_v2(CUpti_SubscriberHandle handle, CUpti_BuffersCallbackRequestFunc_v2 r,
                                                       CUpti_BuffersCallbackCompleteFunc_v2 c) {
    CALL("cuptiActivityRegisterCallbacks_v2");
    struct client *client = client_of(handle, "cuptiActivityRegisterCallbacks_v2");
    client->request_2 = (void *)r;
    client->complete_2 = (void *)c;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnable_v2(CUpti_SubscriberHandle handle, CUpti_ActivityKind kind, CUpti_ActivityConfig *config) {
    (void)config;
    return enable(client_of(handle, "cuptiActivityEnable_v2"), kind);
}
CUptiResult CUPTIAPI cuptiActivityDisable_v2(CUpti_SubscriberHandle handle, CUpti_ActivityKind kind, CUpti_ActivityConfig *config) {
    (void)config;
    return disable(client_of(handle, "cuptiActivityDisable_v2"), kind);
}
CUptiResult CUPTIAPI cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle handle, uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    client_of(handle, "cuptiActivityGetNextRecord_v2");
    return next_record(buffer, valid, record);
}
CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords_v2(CUpti_SubscriberHandle handle, CUcontext context, uint32_t stream,
                                                          size_t *records) {
    (void)context;
    (void)stream;
    return dropped_records(client_of(handle, "cuptiActivityGetNumDroppedRecords_v2"), records);
}
CUptiResult CUPTIAPI cuptiActivitySetAttribute_v2(CUpti_SubscriberHandle handle, CUpti_ActivityAttribute attribute, size_t *size,
                                                  void *value) {
    return set_attribute(client_of(handle, "cuptiActivitySetAttribute_v2"), (uint32_t)attribute, size, value);
}
CUptiResult CUPTIAPI cuptiActivityEnableDriverApi_v2(CUpti_SubscriberHandle handle, CUpti_CallbackId id, uint8_t enable) {
    int error = failure("cuptiActivityEnableDriverApi");
    if (error) {
        return (CUptiResult)error;
    }
    client_of(handle, "cuptiActivityEnableDriverApi_v2")->calls_off[0][id] = !enable;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi_v2(CUpti_SubscriberHandle handle, CUpti_CallbackId id, uint8_t enable) {
    int error = failure("cuptiActivityEnableRuntimeApi");
    if (error) {
        return (CUptiResult)error;
    }
    client_of(handle, "cuptiActivityEnableRuntimeApi_v2")->calls_off[1][id] = !enable;
    return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetEnabledKinds(CUpti_SubscriberHandle handle, CUpti_ActivityKind *kinds, uint32_t *size,
                                                  uint32_t *count) {
    (void)kinds;
    (void)size;
    *count = 0;
    for (int kind = 1; kind < 64; kind++) {
        *count += handle ? client_of(handle, "cuptiActivityGetEnabledKinds")->enabled[kind] : (uint32_t)any_enabled(kind);
    }
    return CUPTI_SUCCESS;
}
#endif
#pragma GCC visibility pop

/* ---------------------------------------------------------------- the second client */

static void other_request(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 65536;
    *buffer = calloc(1, *size);
    *records = 0;
}
static void other_count(uint8_t *buffer, size_t valid) {
    uint64_t whole = 0;
    uint32_t kind = 0;
    for (size_t at = 0; at < valid; at += whole, other_kernels += kind == 10) {
        memcpy(&whole, buffer + at, 8);
        memcpy(&kind, buffer + at + 8, 4);
    }
    free(buffer);
}
static void other_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context;
    (void)stream;
    (void)size;
    other_count(buffer, valid);
}
static void other_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
}
EXPORT int stub_other_subscribe(const char *name, int multiple) {
    if (in_the_way(multiple)) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    other_subscriber = add_subscriber(name, other_callback, NULL, multiple);
    return 0;
}
#if CUPTI_API_VERSION >= 130300
static void other_request_2(uint8_t **buffer, size_t *size, size_t *records, CUpti_BufferCallbackRequestInfo *information) {
    (void)information;
    other_request(buffer, size, records);
}
static void other_complete_2(uint8_t *buffer, size_t size, size_t valid, CUpti_BufferCallbackCompleteInfo *information) {
    (void)size;
    (void)information;
    other_count(buffer, valid);
}
#endif
EXPORT int stub_other_profile(void) {
    struct client *client = other_subscriber && other_subscriber->client ? other_subscriber->client : &first;
#if CUPTI_API_VERSION >= 130300
    if (client != &first) {
        client->request_2 = (void *)other_request_2;
        client->complete_2 = (void *)other_complete_2;
    }
#endif
    if (client == &first) {
        first.request = other_request;
        first.complete = other_complete;
    }
    client->enabled[10] = 1;
    return 0;
}
EXPORT int stub_other_enable(int kind) {
    first.enabled[kind] = 1;
    return 0;
}
EXPORT int stub_other_thread_ids(void) { return thread_ids; }
EXPORT int stub_other_kernels(void) { return other_kernels; }
EXPORT int stub_other_unsubscribe(void) {
    if (!other_subscriber) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    other_subscriber->ended = 1;
    if (other_subscriber->client) {
        reset(other_subscriber->client);
        other_subscriber->client->complete_2 = other_subscriber->client->request_2 = NULL;
    }
    other_subscriber = NULL;
    return 0;
}
EXPORT int stub_other_finalize(void) {
    if (other_subscriber) {
        stub_other_unsubscribe();
    }
    torn = stub_subscribed() > 0 || any_enabled(0);
    end_all();
    return 0;
}
