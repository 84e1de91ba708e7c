/* sampler_infiniband.c - bytes, errors and links of the ports of InfiniBand and RoCE adapters, from SYS/class/infiniband.
 *
 * Reading a counter's file can query the adapter's firmware, which takes time. Bytes are read at most once a second, the rest once a
 * minute, and both less often if reading is slow. Ports are listed when the session begins. */
#define _DEFAULT_SOURCE 1
#include "sampler.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"

#define PORTS_MAX 64
#define BYTES_S 1.0
#define STATE_S 60.0
#define COST_FACTOR 500          /* at most 1/500 of the time is spent in either */
#define SATURATED 4294967295u    /* at which a counter of 32 bits stays */
#define WORD 4                   /* bytes that port_xmit_data and port_rcv_data count as one */

enum { TRANSMITTED, RECEIVED, BYTE_FILES };
static const char *const byte_files[BYTE_FILES] = {"counters/port_xmit_data", "counters/port_rcv_data"};
static const enum sampler_metric byte_metrics[BYTE_FILES] = {M_INFINIBAND_TRANSMIT, M_INFINIBAND_RECEIVE};

/* Counted from the first reading. */
static const struct {
    const char *file;
    enum sampler_metric metric;
} counters[] = {
    {"counters/symbol_error", M_INFINIBAND_SYMBOL_ERRORS},           {"counters/link_downed", M_INFINIBAND_LINK_DOWNED},
    {"counters/link_error_recovery", M_INFINIBAND_LINK_RECOVERIES},  {"counters/port_rcv_errors", M_INFINIBAND_RECEIVE_ERRORS},
    {"counters/port_xmit_discards", M_INFINIBAND_TRANSMIT_DISCARDS}, {"counters/port_xmit_wait", M_INFINIBAND_TRANSMIT_WAIT},
    {"hw_counters/out_of_sequence", M_ROCE_OUT_OF_SEQUENCE},         {"hw_counters/packet_seq_err", M_ROCE_SEQUENCE_ERRORS},
    {"hw_counters/local_ack_timeout_err", M_ROCE_ACK_TIMEOUTS},      {"hw_counters/rp_cnp_handled", M_ROCE_CONGESTION_NOTIFICATIONS},
};
enum { COUNTERS = sizeof counters / sizeof *counters };

struct counter {
    int known;
    uint64_t first, last;
    int64_t ticks;
};

struct infiniband_port {
    char device[SAMPLER_NAME], number[SAMPLER_NAME];
    int fd[BYTE_FILES]; /* kept open; files that are read once a minute are not, as a program may have few descriptors left */
    struct counter bytes[BYTE_FILES], count[COUNTERS];
    int active, tenths; /* link, as last written: 1 or 0, tenths of Gbit/s; -1: not yet */
};

struct infiniband {
    int64_t bytes_due, state_due; /* ticks; 0: now */
    int count;
    struct infiniband_port port[PORTS_MAX];
};

/* ---------------------------------------------------------------- opening */

static int open_file(const struct sampler *sampler, const struct infiniband_port *port, const char *file) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "class/infiniband/%s/ports/%s/%s", port->device, port->number, file);
    return length > 0 && (size_t)length < sizeof path ? postrun_sampler_open(sampler->sys, path) : -ENAMETOOLONG;
}

/* The first line of a file of the port; NULL: not there, or not to be read. */
static char *line_of(struct sampler *sampler, const struct infiniband_port *port, const char *file) {
    char *text = NULL;
    int fd = open_file(sampler, port, file);
    int64_t length = fd < 0 ? fd : postrun_sampler_read(sampler, fd, 1, &text);
    postrun_sampler_close(&fd);
    if (length <= 0) {
        return NULL;
    }
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static void fact(struct sampler *sampler, int unit, const struct infiniband_port *port, const char *file) {
    char key[64], *text = line_of(sampler, port, file);
    snprintf(key, sizeof key, "infiniband.%d.%s", unit, file);
    if (text != NULL) {
        postrun_metadata(key, text);
    }
}

/* Whether the port has a counter of bytes. */
static int add_port(struct sampler *sampler, struct infiniband *all, const char *device, const char *number) {
    int unit = all->count++, found = 0;
    struct infiniband_port *port = &all->port[unit];
    memcpy(port->device, device, strlen(device) + 1); /* shorter than SAMPLER_NAME */
    memcpy(port->number, number, strlen(number) + 1);
    for (int i = 0; i < BYTE_FILES; i++) {
        port->fd[i] = open_file(sampler, port, byte_files[i]);
        found |= port->fd[i] >= 0;
    }
    port->active = port->tenths = -1;
    char key[64], name[2 * SAMPLER_NAME + 2];
    snprintf(key, sizeof key, "infiniband.%d.port", unit);
    snprintf(name, sizeof name, "%s/%s", port->device, port->number);
    postrun_metadata(key, name);
    fact(sampler, unit, port, "link_layer");
    fact(sampler, unit, port, "rate");
    return found;
}

/* The names in a folder of SYS, sorted. -errno: there is no such folder. */
static int names_in(const struct sampler *sampler, const char *folder, struct dirent ***names) {
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", sampler->sys, folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        return -ENAMETOOLONG;
    }
    int count = scandir(path, names, NULL, alphasort);
    return count < 0 ? -errno : count;
}

static int usable(const char *name) { return name[0] != '.' && strlen(name) < SAMPLER_NAME; }

void postrun_sampler_infiniband_open(struct sampler *sampler) {
    struct dirent **devices, **ports;
    int count = names_in(sampler, "class/infiniband", &devices);
    if (count < 0) {
        return; /* no adapter, as on most machines */
    }
    struct infiniband *all = count > 0 ? calloc(1, sizeof *all) : NULL;
    int found = 0, unread = 0, left_out = 0;
    for (int i = 0; i < count; i++) {
        char folder[SAMPLER_NAME + 64];
        if (all && usable(devices[i]->d_name)) {
            snprintf(folder, sizeof folder, "class/infiniband/%.*s/ports", SAMPLER_NAME, devices[i]->d_name);
            int numbers = names_in(sampler, folder, &ports);
            for (int k = 0; k < numbers; k++) {
                if (usable(ports[k]->d_name) && all->count == PORTS_MAX) {
                    left_out++;
                } else if (usable(ports[k]->d_name)) {
                    int with = add_port(sampler, all, devices[i]->d_name, ports[k]->d_name);
                    found += with;
                    unread += !with;
                }
                free(ports[k]);
            }
            if (numbers >= 0) {
                free(ports);
            }
        }
        free(devices[i]);
    }
    free(devices);
    if (left_out) {
        postrun_session_capability("infiniband", "more than 64 ports: those from 64 on are not sampled");
    } else if (unread) {
        postrun_session_capability("infiniband",
                                   found ? "some ports have no counters that can be read" : "no port has counters that can be read");
    }
    sampler->infiniband = all;
}

void postrun_sampler_infiniband_close(struct sampler *sampler) {
    struct infiniband *all = sampler->infiniband;
    if (all == NULL) {
        return;
    }
    for (int i = 0; i < all->count; i++) {
        for (int k = 0; k < BYTE_FILES; k++) {
            postrun_sampler_close(&all->port[i].fd[k]);
        }
    }
    free(all);
    sampler->infiniband = NULL;
}

/* ---------------------------------------------------------------- reading */

static int number_of(const char *text, uint64_t *value) {
    char line[32];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    const char *at = line;
    return sampler_number(&at, value);
}

static void read_bytes(struct sampler *sampler, struct infiniband_port *port, int unit) {
    double rate = postrun_clock_rate();
    for (int i = 0; i < BYTE_FILES; i++) {
        struct counter *counter = &port->bytes[i];
        uint64_t value;
        char *text;
        if (port->fd[i] < 0 || postrun_sampler_read(sampler, port->fd[i], 1, &text) <= 0 || !number_of(text, &value)) {
            counter->known = 0;
            continue;
        }
        sampler->anything = 1;
        if (value == SATURATED) {
            postrun_session_capability("infiniband.bytes", "a counter stays at the largest number of 32 bits: that port has no rates");
            postrun_sampler_close(&port->fd[i]);
            continue;
        }
        double elapsed = (double)(sampler->ticks - counter->ticks) / rate;
        int64_t words = sampler_difference(value, counter->last);
        if (counter->known && words >= 0 && elapsed > 0) {
            postrun_sampler_emit(sampler, byte_metrics[i], unit, WORD * (double)words / elapsed);
        }
        *counter = (struct counter){1, 0, value, sampler->ticks};
    }
}

static void read_link(struct sampler *sampler, struct infiniband_port *port, int unit) {
    const char *text = line_of(sampler, port, "state"); /* "4: ACTIVE" */
    if (text != NULL && text[0] >= '0' && text[0] <= '9' && text[1] == ':') {
        int active = strncmp(text, "4:", 2) == 0;
        if (active != port->active) {
            postrun_sampler_emit(sampler, M_INFINIBAND_LINK_ACTIVE, unit, active);
        }
        port->active = active;
    }
    text = line_of(sampler, port, "rate"); /* "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" */
    int tenths = 0;
    if (text == NULL) {
        return;
    }
    for (; *text >= '0' && *text <= '9' && tenths < 1000000; text++) {
        tenths = tenths * 10 + (*text - '0');
    }
    tenths *= 10;
    if (text[0] == '.' && text[1] >= '0' && text[1] <= '9') {
        tenths += text[1] - '0';
        text += 2;
    }
    if (strncmp(text, " Gb/sec", 7) == 0 && tenths != port->tenths) {
        postrun_sampler_emit(sampler, M_INFINIBAND_LINK_RATE, unit, tenths / 10.0);
        port->tenths = tenths;
    }
}

static void read_counters(struct sampler *sampler, struct infiniband_port *port, int unit) {
    for (int i = 0; i < COUNTERS; i++) {
        struct counter *counter = &port->count[i];
        const char *text = line_of(sampler, port, counters[i].file);
        uint64_t value;
        if (text == NULL || !number_of(text, &value)) {
            continue;
        }
        if (!counter->known) {
            counter->first = value;
        } else if (value < counter->last) {
            counter->first -= counter->last; /* was reset: counted on from there, modulo 2^64 */
        }
        if (!counter->known || value != counter->last) {
            postrun_sampler_emit(sampler, counters[i].metric, unit, (double)(value - counter->first));
        }
        counter->known = 1;
        counter->last = value;
    }
}

static int64_t next_of(const struct sampler *sampler, double period_s, int64_t begun) {
    double cost_s = (double)(postrun_clock_monotonic() - begun) / 1e9 * COST_FACTOR;
    return sampler->ticks + (int64_t)((cost_s > period_s ? cost_s : period_s) * postrun_clock_rate());
}

void postrun_sampler_infiniband_sample(struct sampler *sampler) {
    struct infiniband *all = sampler->infiniband;
    if (all == NULL) {
        return;
    }
    int64_t near = (int64_t)(sampler->interval_ms * postrun_clock_rate() / 2e3); /* half an interval */
    if (all->bytes_due == 0 || sampler->ticks + near >= all->bytes_due) {
        int64_t begun = postrun_clock_monotonic();
        for (int i = 0; i < all->count; i++) {
            read_bytes(sampler, &all->port[i], i);
        }
        all->bytes_due = next_of(sampler, BYTES_S, begun);
    }
    if (all->state_due == 0 || sampler->ticks + near >= all->state_due) {
        int64_t begun = postrun_clock_monotonic();
        for (int i = 0; i < all->count; i++) {
            read_link(sampler, &all->port[i], i);
            read_counters(sampler, &all->port[i], i);
        }
        all->state_due = next_of(sampler, STATE_S, begun);
    }
}
